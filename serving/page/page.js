// The page at `/` (serving/page/routes.py): models, masks, and event handlers.

import { $, ask, choose, compare, count, element, latest, lines, say } from "./answers.js";
import { compareTexts, rankTexts } from "./pairs.js";
import { scoreTable } from "./scores.js";
import { callSignature, loadSignatures, showInputs } from "./signatures.js";

let mask = "[MASK]"; // of the chosen model: <mask> with byte-level BPE
const REFRESH_MS = 2000; // while a model loads

// --- Models and versions

/** Show the served models; a refresh with the same answer as `before` changes nothing, nor what is being typed. */
function loadModels(before = null) {
  return latest("models", async (signal) => {
    let [models, answer] = [[], ""];
    if (before === null) say("models-status", "Loading the models …");
    try {
      answer = await ask("/v1/models", undefined, signal);
      models = answer.value.models;
      say("models-status", models.length ? `${count(models.length, "model")}.` : "The server has no model.");
    } catch (error) {
      if (signal.aborted) return;
      say("models-status", error.message, true);
      if (error.status === 401) $("token").focus();
    }
    const states = models.map(({ model_version_status: versions }) => versions.map(({ state }) => state));
    const waits = states.some((of) => !of.length || of.includes("LOADING"));
    if (waits && !signal.aborted) setTimeout(() => signal.aborted || loadModels(answer.text), REFRESH_MS);
    if (answer.text === before) return;
    $("models").replaceChildren(...(models.length ? [modelTable(models)] : []));
    fillTargets(models);
    showMask();
    await loadSignatures();
  });
}

function modelTable(models) {
  const groups = models.map(({ name, labels, model_version_status: versions }) => {
    const rows = versions.map(({ version, state, status }) => {
      const named = Object.keys(labels).filter((label) => labels[label] === version);
      const cell = element("td", {}, state);
      if (status.error_message) cell.append(element("div", { class: "error" }, status.error_message));
      return element("tr", {}, element("td", {}, version), cell, element("td", {}, named.join(", ")));
    });
    if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: 3 }, "no version yet")));
    const title = element("tr", {}, element("th", { scope: "rowgroup", colspan: 3 }, name));
    return element("tbody", {}, title, ...rows);
  });
  const heads = ["Version", "State", "Labels"].map((head) => element("th", { scope: "col" }, head));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), ...groups);
}

/** Targets for each model: its newest version, available versions, and labels. The value is the path; with its mask. */
function fillTargets(models) {
  const groups = () =>
    models.map(({ name, labels, model_version_status: versions }) => {
      const path = `/v1/models/${encodeURIComponent(name)}`;
      const serving = versions.filter(({ state }) => state === "AVAILABLE").map(({ version }) => version);
      const masks = new Map(versions.map(({ version, mask }) => [version, mask]));
      const options = [
        ["newest version", path, serving.at(-1)],
        ...Object.entries(labels).map(([label, version]) => [
          `label ${label} (version ${version})`,
          `${path}/labels/${encodeURIComponent(label)}`,
          version,
        ]),
        ...serving.reverse().map((version) => [`version ${version}`, `${path}/versions/${version}`, version]),
      ];
      const made = options.map(([what, value, version]) =>
        element("option", { value, "data-mask": masks.get(version) ?? false }, `${name}, ${what}`),
      );
      return element("optgroup", { label: name }, ...made);
    });
  for (const [id, first] of [["target", []], ["other", [element("option", { value: "" }, "nothing")]]]) {
    const before = $(id).value;
    $(id).replaceChildren(...first, ...groups());
    choose($(id), before);
  }
}

// --- Fill masks

/** Show the mask of the chosen model, also in place of another model's in the texts. */
function showMask() {
  const before = mask;
  mask = $("target").selectedOptions[0]?.dataset.mask ?? "[MASK]";
  if (mask === before) return;
  $("insert").textContent = `Insert ${mask}`;
  $("mask").textContent = mask;
  $("texts").value = $("texts").value.replaceAll(before, mask);
}

function fillMasks() {
  const texts = lines($("texts").value);
  const body = JSON.stringify({ signature_name: "fill_mask", inputs: { text: texts } });
  return compare("fill", "predict", body, ({ value }, other) => {
    const { tokens, scores } = value.outputs;
    if (!tokens || !scores) return [element("p", {}, "The answer has no tokens and scores: see JSON.")];
    return texts.flatMap((text, row) => {
      const filled = element("p", { class: "text", dir: "auto" });
      text.split(mask).forEach((piece, index) => {
        if (index) filled.append(element("mark", {}, tokens[row][index - 1]?.[0] || mask));
        filled.append(piece);
      });
      const masks = tokens[row].map((_, mask) =>
        maskTable(mask, tokens[row][mask], scores[row][mask], other?.value.outputs.tokens?.[row]?.[mask]),
      );
      return [filled, element("div", { class: "masks" }, ...masks.filter(Boolean))];
    });
  });
}

/** Tokens for one mask, best first; null for padding. Tokens that `others` lacks for this mask are marked. */
function maskTable(mask, tokens, scores, others) {
  const ranked = tokens.map((token, rank) => ({ token, score: scores[rank], rank }));
  const known = ranked.filter(({ token }) => token);
  if (!known.length) return null;
  const differs = ({ token, rank }) => Boolean(others) && others[rank] !== token;
  const rows = known.map((one) => ({
    cells: [element("span", { class: differs(one) && "differs" }, one.token)],
    score: one.score,
  }));
  const caption = `Mask ${mask + 1}${known.some(differs) ? "; underlined: the other has another token here" : ""}`;
  return scoreTable(caption, ["Token"], rows);
}

// --- Events

const forms = { access: loadModels, fill: fillMasks, vectors: compareTexts, rerank: rankTexts, call: callSignature };
for (const [id, work] of Object.entries(forms)) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    work();
  });
  $(id).addEventListener("keydown", (event) => {
    const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (sends && event.target.matches("textarea")) $(id).requestSubmit();
  });
}
$("insert").addEventListener("click", () => {
  const area = $("texts");
  area.setRangeText(mask, area.selectionStart, area.selectionEnd, "end");
  area.focus();
});
$("target").addEventListener("change", () => {
  showMask();
  loadSignatures();
});
$("signature").addEventListener("change", showInputs);
loadModels();
