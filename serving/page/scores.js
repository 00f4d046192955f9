// Outputs shown together: scores with their labels, words with their tags, answers in their contexts.

import { element } from "./answers.js";

const MOST_ROWS = 20;

/** Table of scores, with one `{ cells, score }` per row; as percentages if all can be probabilities. */
export function scoreTable(caption, names, rows) {
  const probabilities = rows.every(({ score }) => score >= 0 && score <= 1);
  const shown = rows.map(({ cells, score }) => {
    const number = probabilities ? `${(100 * score).toFixed(1)} %` : Number(score).toFixed(3);
    const made = cells.map((cell) => element("td", { dir: "auto" }, cell));
    made.push(element("td", { class: "number" }, number));
    if (probabilities) {
      const meter = element("meter", { min: 0, max: 1, value: score, "aria-hidden": "true" });
      made.push(element("td", { class: "bar-of-score" }, meter));
    }
    return element("tr", {}, ...made);
  });
  const heads = names.map((name) => element("th", { scope: "col" }, name));
  heads.push(element("th", { scope: "col", class: "number" }, "Score"));
  if (probabilities) heads.push(element("td", {}));
  const head = element("thead", {}, element("tr", {}, ...heads));
  return element("table", { class: "scores" }, element("caption", {}, caption), head, element("tbody", {}, ...shown));
}

const depth = (value) => (Array.isArray(value) ? 1 + (value.length ? depth(value[0]) : 0) : 0);

/** Whether all are arrays of arrays, `dimensions` deep, of the same lengths. */
function alike(dimensions, first, ...others) {
  if (depth(first) !== dimensions || others.some((other) => depth(other) !== dimensions)) return false;
  if (!dimensions) return true;
  const same = others.every((other) => other.length === first.length);
  return same && first.every((one, index) => alike(dimensions - 1, one, ...others.map((other) => other[index])));
}

/** A row without padding, which is "". */
const known = (rows) => rows.filter(({ cells: [first] }) => first);

const best = (rows) => rows.sort((one, other) => other.score - one.score);

/** Show related `outputs` together; returns their names and the nodes. `typed` has the lines of each input. */
export function together(outputs, typed) {
  const { answer, choice, end, labels, scores, start, tags, tokens, words } = outputs;
  const titled = (row, masks = "") => (typed.text?.[row] ? `${typed.text[row]}${masks}` : `Row ${row + 1}${masks}`);
  const ofRows = (names, show, all) => ({ names, nodes: all.slice(0, MOST_ROWS).flatMap((_, row) => show(row)) });
  if (alike(2, words, tags, scores)) {
      const pairs = (row) => words[row].map((word, at) => ({ cells: [word, tags[row][at]], score: scores[row][at] }));
    return ofRows(
      ["words", "tags", "scores", "starts", "ends"],
      (row) => scoreTable(titled(row), ["Word", "Tag"], known(pairs(row))),
      words,
    );
  }
  if (alike(2, labels, scores)) {
    const rows = (row) => best(labels[row].map((label, at) => ({ cells: [label], score: scores[row][at] })));
    return ofRows(["label", "labels", "scores"], (row) => scoreTable(titled(row), ["Label"], rows(row)), labels);
  }
  if (alike(1, choice) && depth(scores) === 2) {
    const rows = (row) => best(scores[row].map((score, at) => ({ cells: [`${at}`], score })));
    return ofRows(["choice", "scores"], (row) => scoreTable(titled(row), ["Choice"], rows(row)), scores);
  }
  if (alike(3, tokens, scores)) {
    const rows = (row, mask) =>
      known(tokens[row][mask].map((token, at) => ({ cells: [token], score: scores[row][mask][at] })));
    const show = (row) =>
      tokens[row].flatMap((_, mask) => {
        const found = rows(row, mask);
        return found.length ? [scoreTable(titled(row, `, mask ${mask + 1}`), ["Token"], found)] : [];
      });
    return ofRows(["tokens", "scores"], show, tokens);
  }
  if (alike(1, answer, start, end)) {
    const show = (row) => span(answer[row], start[row], end[row], typed.context?.[row]);
    return ofRows(["answer", "start", "end"], show, answer);
  }
  return { names: [], nodes: [] };
}

/** An answer, marked in its context if it is found there. */
function span(answer, start, end, context) {
  if (!answer) return element("p", { class: "text" }, "No answer.");
  const characters = [...(context ?? "")];
  const found = characters.slice(start, end).join("") === answer;
  const around = found ? [characters.slice(0, start).join(""), characters.slice(end).join("")] : ["", ""];
  return element("p", { class: "text", dir: "auto" }, around[0], element("mark", {}, answer), around[1]);
}
