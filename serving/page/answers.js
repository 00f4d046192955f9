// Shared by all parts of the page: the document, the server, and answers side by side. Output of servers and models is
// inserted as text, never as HTML.

export const $ = (id) => document.getElementById(id);
const running = new Map(); // part of the page -> controller of its requests

/** Create an element; attributes that are false are omitted, children that are strings become text. */
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

/** Lines of a text, without an empty one after the last line end. */
export const lines = (text) => text.replace(/\n$/, "").split("\n");

/** Select the option `value` if it exists, else the first. */
export function choose(select, value) {
  select.value = value;
  if (select.selectedIndex < 0 && select.options.length) select.selectedIndex = 0;
}

// --- The server

/** Quotes NaN, Infinity and integers beyond JavaScript's numbers in TensorFlow Serving's JSON, so that they are read as
 * strings. */
function parse(text) {
  const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|NaN|-?Infinity|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const quoted = (token) => (/^(?:NaN|-?Infinity|-?\d{16,})$/.test(token) ? `"${token}"` : token);
  return JSON.parse(text.replace(tokens, quoted));
}

/** Send a request; errors have the server's message. */
export async function ask(path, body, signal) {
  const token = $("token").value.trim();
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const began = performance.now();
  const response = await fetch(path, { method: body === undefined ? "GET" : "POST", body, headers, signal });
  const text = await response.text();
  const milliseconds = performance.now() - began;
  if (response.status === 401) $("token-part").hidden = false; // from now on: tokens may expire or be mistyped
  if (!response.ok) {
    let message = text;
    try {
      message = parse(text).error;
    } catch {
      // From something else, e.g. a proxy.
    }
    throw Object.assign(new Error(`${response.status}: ${message}`), { status: response.status });
  }
  return { value: parse(text), text, milliseconds, version: response.headers.get("X-Model-Version") };
}

/** Run `work` for a part of the page, cancelling its earlier requests. */
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

// --- Answers of one target, or of two side by side

/** Call the targets in sequence, so that their latencies are independent, and show their answers: `show(answer, other)`
 * returns nodes; `other` is the other target's answer, if there is one. */
export function compare(part, call, body, show) {
  return latest(part, async (signal) => {
    const [place, selects] = [$(`${part}-answers`), [$("target"), $("other")]];
    const options = selects.map((select) => select.selectedOptions[0]).filter((option) => option?.value);
    if (!options.length) {
      say(`${part}-status`, "No model is available.", true);
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

/** Preformatted text that can be scrolled with the keyboard. */
export function scrolled(label, text) {
  return element("pre", { tabindex: 0, role: "group", "aria-label": label, dir: "auto" }, text);
}
