// What all parts of the page use: the document, the server, and answers side by side. What a server or a model says
// reaches the document as text, never as HTML.

export const $ = (id) => document.getElementById(id);
const running = new Map(); // a part of the page -> what ends its requests under way

/** An element; attributes that are false are left out, children that are strings become text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

export function say(id, text, wrong = false) {
  $(id).textContent = text;
  $(id).classList.toggle("error", wrong);
}

/** The lines of a text; one that ends its last line has no empty one after it. */
export const lines = (text) => text.replace(/\n$/, "").split("\n");

/** Selects `value` where there is such an option, else the first. */
export function choose(select, value) {
  select.value = value;
  if (select.selectedIndex < 0 && select.options.length) select.selectedIndex = 0;
}

// --- The server

/** JSON as TensorFlow Serving writes it: NaN and Infinity, and integers that a JavaScript number cannot hold, become
 * strings. */
function parse(text) {
  const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|NaN|-?Infinity|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const quoted = (token) => (/^(?:NaN|-?Infinity|-?\d{16,})$/.test(token) ? `"${token}"` : token);
  return JSON.parse(text.replace(tokens, quoted));
}

/** Asks the server; an Error has its message as the server says it. */
export async function ask(path, body, signal) {
  const token = $("token").value.trim();
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const began = performance.now();
  const response = await fetch(path, { method: body === undefined ? "GET" : "POST", body, headers, signal });
  const text = await response.text();
  const milliseconds = performance.now() - began;
  if (!response.ok) {
    let said = text;
    try {
      said = parse(text).error;
    } catch {
      // Not ours: a proxy's, say.
    }
    throw Object.assign(new Error(`${response.status}: ${said}`), { status: response.status });
  }
  return { value: parse(text), text, milliseconds, version: response.headers.get("X-Model-Version") };
}

/** Runs `work` for a part of the page; what it still has under way is given up. */
export async function latest(part, work) {
  running.get(part)?.abort();
  const controller = new AbortController();
  running.set(part, controller);
  try {
    await work(controller.signal);
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
}

// --- Answers, of one target or of two side by side

/** Asks the targets one after the other, so that neither's latency holds the other's, and shows what `show` makes of
 * their answers: `show(answer, others)` gives nodes, and `others` is the other's answer, if there is one. */
export function compare(part, call, body, show) {
  return latest(part, async (signal) => {
    const [place, selects] = [$(`${part}-answers`), [$("target"), $("other")]];
    const options = selects.map((select) => select.selectedOptions[0]).filter((option) => option?.value);
    if (!options.length) {
      say(`${part}-status`, "There is no model to ask.", true);
      return;
    }
    say(`${part}-status`, "Waiting for the answer …");
    place.setAttribute("aria-busy", "true");
    const answers = [];
    for (const { value, textContent } of options) {
      try {
        answers.push({ target: textContent, ...(await ask(`${value}:${call}`, body, signal)) });
      } catch (error) {
        signal.throwIfAborted();
        answers.push({ target: textContent, error });
      }
    }
    const good = answers.filter(({ error }) => !error);
    place.replaceChildren(...answers.map((answer) => card(answer, good.find((other) => other !== answer), show)));
    place.setAttribute("aria-busy", "false");
    say(`${part}-status`, summary(answers, good), good.length < answers.length);
  });
}

function summary(answers, good) {
  if (good.length < answers.length) return answers.length === 1 ? "Refused." : `${good.length} of 2 answered.`;
  if (good.length === 1) return "Answered.";
  return good[0].text === good[1].text ? "Both answers are the same." : "The answers differ.";
}

function card(answer, other, show) {
  const made = element("article", { class: "answer" }, element("h3", {}, answer.target));
  if (answer.error) {
    made.append(element("p", { class: "error" }, answer.error.message));
    return made;
  }
  const facts = `Version ${answer.version} answered in ${answer.milliseconds.toFixed(1)} ms.`;
  made.append(element("p", { class: "facts" }, facts), ...show(answer, other));
  const raw = scrolled("The answer as JSON", "");
  const details = element("details", {}, element("summary", {}, "JSON"), raw);
  details.addEventListener("toggle", () => (raw.textContent = answer.text), { once: true });
  made.append(details);
  return made;
}

/** Preformatted text that the keyboard can scroll. */
export function scrolled(label, text) {
  return element("pre", { tabindex: 0, role: "group", "aria-label": label, dir: "auto" }, text);
}
