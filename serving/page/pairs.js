// Texts compared with each other by their vectors, and ranked for a query.

import { $, compare, element, lines } from "./answers.js";
import { scoreTable } from "./scores.js";

const MOST_TEXTS = 20; // in a table
const HEATS = 5; // classes of colours in page.css

/** Show the forms that the signatures of the chosen target can answer. */
export function showPairForms({ embed, serving_default: pair }) {
  const ranks = pair?.outputs.score && Object.keys(pair.inputs).sort().join() === "text,text_pair";
  $("vectors-part").hidden = !embed;
  $("rerank-part").hidden = !ranks;
}

const length = (vector) => Math.hypot(...vector);
const product = (one, other) => one.reduce((sum, value, at) => sum + value * other[at], 0);

export function compareTexts() {
  const texts = lines($("compared").value).slice(0, MOST_TEXTS);
  const body = JSON.stringify({ signature_name: "embed", inputs: { text: texts } });
  return compare("vectors", "predict", body, ({ value }) => {
    const vectors = value.outputs.embedding;
    const cosine = (one, other) => product(one, other) / (length(one) * length(other) || 1);
    return [cosineTable(texts, vectors.map((one) => vectors.map((other) => cosine(one, other))))];
  });
}

/** A row and a column for each text, by its number. */
function cosineTable(texts, cosines) {
  const heads = texts.map((_, at) => element("th", { scope: "col", class: "number" }, `${at + 1}`));
  const rows = texts.map((text, row) => {
    const cells = cosines[row].map((cosine) => {
      const heat = Math.max(0, Math.min(HEATS - 1, Math.floor(HEATS * cosine)));
      return element("td", { class: `number heat-${heat}` }, cosine.toFixed(2));
    });
    return element("tr", {}, element("th", { scope: "row", dir: "auto" }, `${row + 1} ${text}`), ...cells);
  });
  const head = element("thead", {}, element("tr", {}, element("td", {}), ...heads));
  const caption = element("caption", {}, "Cosines; 1: same direction");
  const table = element("table", { class: "cosines" }, caption, head, element("tbody", {}, ...rows));
  return element("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Cosines" }, table);
}

export function rankTexts() {
  const [query, texts] = [$("query").value, lines($("ranked").value)];
  const body = JSON.stringify({ inputs: { text: texts.map(() => query), text_pair: texts } });
  return compare("rerank", "predict", body, ({ value }) => {
    const scores = value.outputs.score ?? value.outputs; // a single output is bare
    const ranked = texts.map((text, at) => ({ cells: [text], number: scores[at], score: 1 / (1 + Math.exp(-scores[at])) }));
    ranked.sort((one, other) => other.number - one.number);
    const table = scoreTable(query, ["Text"], ranked);
    table.classList.add("ranked");
    return [table];
  });
}
