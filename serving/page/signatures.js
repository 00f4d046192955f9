// Calls any signature: a form made from its metadata, and its outputs.

import { $, ask, choose, compare, count, element, latest, lines, say, scrolled } from "./answers.js";
import { showPairForms } from "./pairs.js";
import { together } from "./scores.js";

const CALL_OF_METHOD = { "tensorflow/serving/classify": "classify", "tensorflow/serving/regress": "regress" };
const MOST_ROWS = 100;
const MOST_VALUES = 16; // for a list within a row
const LITERAL = /^(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity|true|false)$/;
let signatures = {}; // of the chosen target, as in /metadata

export function loadSignatures() {
  return latest("signatures", async (signal) => {
    signatures = {};
    const path = $("target").value;
    let message = "";
    if (path) {
      try {
        const { value } = await ask(`${path}/metadata`, undefined, signal);
        signatures = value.metadata.signature_def.signature_def;
      } catch (error) {
        signal.throwIfAborted();
        message = error.message;
      }
    }
    say("signature-status", message, true);
    const before = $("signature").value || "serving_default";
    // TensorFlow's own signatures (__saved_model_init_op) are not for callers.
    const names = Object.keys(signatures).filter((name) => !name.startsWith("__")).sort();
    // A classifier fills no masks; without metadata the form stays.
    $("fill-part").hidden = names.length > 0 && !names.includes("fill_mask");
    showPairForms(signatures);
    $("signature").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    choose($("signature"), before);
    showInputs();
  });
}

/** A field for each input of the chosen signature; text typed for an input of the same name is kept. */
export function showInputs() {
  const before = new Map([...$("inputs").querySelectorAll("textarea")].map((area) => [area.dataset.name, area.value]));
  const chosen = signatures[$("signature").value];
  const onExamples = chosen && CALL_OF_METHOD[chosen.method_name];
  const infos = onExamples ? [["examples", null]] : Object.entries(chosen?.inputs ?? {}).sort();
  const fields = infos.map(([name, info], index) => {
    const id = `input-${index}`;
    const area = element("textarea", { id, rows: 3, dir: "auto", "aria-describedby": `${id}-hint` });
    area.dataset.name = name;
    area.value = before.get(name) ?? "";
    const label = element("label", { for: id }, name);
    const hint = element("p", { id: `${id}-hint`, class: "hint" }, hintOf(info));
    const made = element("div", { class: "input" }, label, hint, area);
    if (info?.dtype === "DT_STRING") {
      const box = element("input", { type: "checkbox", id: `${id}-bytes` });
      made.append(element("label", { class: "choice" }, box, `${name} is base64 (bytes, not text)`));
    }
    return made;
  });
  $("inputs").replaceChildren(...fields);
}

/** Number of dimensions; null if unknown. */
const rankOf = (info) => (info.tensor_shape.unknown_rank ? null : info.tensor_shape.dim.length);

function describe(info) {
  const sizes = info.tensor_shape.dim.map(({ size }) => (size === "-1" ? "?" : size)).join(", ");
  return `${info.dtype} [${rankOf(info) === null ? "any shape" : sizes}]`;
}

function hintOf(info) {
  if (!info) return 'A tf.Example a line, as JSON: {"text": "a"}.';
  const [rank, text] = [rankOf(info), info.dtype === "DT_STRING"];
  const ways = ["One value.", `A ${text ? "text" : "number"} a line.`, 'A row a line: 1 2.5, or JSON: [1, 2.5].'];
  const json = rank === null ? "All of it as JSON." : 'A row a line, as JSON: ["a", "b"].';
  const way = rank === null || rank > 2 || (rank === 2 && text) ? json : ways[rank];
  return `${describe(info)}. ${way} An empty field is not sent.`;
}

/** Text typed for an input as JSON. Values that do not match its dtype are sent unchanged, for the server to check. */
function inputJson(info, typed, bytes) {
  const one = (text) => {
    if (info.dtype !== "DT_STRING") return LITERAL.test(text.trim()) ? text.trim() : JSON.stringify(text);
    return JSON.stringify(bytes ? { b64: text } : text);
  };
  const words = (line) => line.split(/[\s,]+/).filter(Boolean);
  const rank = rankOf(info);
  if (rank === null) return typed;
  if (rank === 0) return one(typed.replace(/\n$/, ""));
  const rows = lines(typed).map((line) => {
    if (rank === 1) return one(line);
    const json = rank > 2 || info.dtype === "DT_STRING" || line.trim().startsWith("[");
    return json ? line : `[${words(line).map(one).join(", ")}]`;
  });
  return `[${rows.join(", ")}]`;
}

export function callSignature() {
  const name = $("signature").value;
  const signature = signatures[name];
  if (!signature) {
    say("call-status", "There is no signature to call.", true);
    return;
  }
  const call = CALL_OF_METHOD[signature.method_name] ?? "predict";
  const areas = [...$("inputs").querySelectorAll("textarea")].filter((area) => area.value);
  const typed = Object.fromEntries(areas.map(({ value, dataset }) => [dataset.name, lines(value)]));
  // Text, not objects: JavaScript's numbers would round 64-bit integers.
  const values = areas.map(({ id, value, dataset }) => {
    if (call !== "predict") return lines(value).join(", ");
    const bytes = $(`${id}-bytes`)?.checked;
    return `${JSON.stringify(dataset.name)}: ${inputJson(signature.inputs[dataset.name], value, bytes)}`;
  });
  const inputs = call === "predict" ? `"inputs": {${values.join(", ")}}` : `"examples": [${values.join()}]`;
  const body = `{"signature_name": ${JSON.stringify(name)}, ${inputs}}`;
  return compare("call", call, body, ({ value }) => {
    if (call !== "predict") return results(value.results, call);
    const names = Object.keys(signature.outputs).sort();
    // A single output is bare.
    const outputs = names.length === 1 ? { [names[0]]: value.outputs } : value.outputs;
    const shown = together(outputs, typed);
    const rest = Object.keys(outputs).filter((one) => !shown.names.includes(one)).sort();
    return [...shown.nodes, ...rest.flatMap((one) => output(one, outputs[one], signature.outputs[one]))];
  });
}

/** Results: for Classify a list of [label, score] per row, for Regress a number per row. */
function results(rows, call) {
  if (call !== "classify") return output("results", rows);
  const part = (index) => rows.map((row) => row.map((pair) => pair[index]));
  return together({ labels: part(0), scores: part(1) }, {}).nodes;
}

/** Name and shape of an output, and its first rows. */
function output(name, value, info) {
  const quote = !info || info.dtype === "DT_STRING";
  const rows = Array.isArray(value) && value.length ? value : [value];
  const shown = rows.slice(0, MOST_ROWS).map((row) => valueText(row, quote));
  if (rows.length > shown.length) shown.push(`… ${count(rows.length - shown.length, "more row")}: see JSON`);
  const title = element("h4", {}, name, " ", element("span", { class: "facts" }, `[${shapeOf(value).join(", ")}]`));
  return [title, scrolled(`Values of ${name}`, shown.join("\n"))];
}

const shapeOf = (value) => (Array.isArray(value) ? [value.length, ...(value.length ? shapeOf(value[0]) : [])] : []);

function valueText(value, quote) {
  if (!Array.isArray(value)) return typeof value === "string" && !quote ? value : JSON.stringify(value);
  const items = value.slice(0, MOST_VALUES).map((item) => valueText(item, quote));
  if (value.length > MOST_VALUES) items.push(`… ${value.length}`);
  return `[${items.join(", ")}]`;
}
