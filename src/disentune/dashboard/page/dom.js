// Elements and texts. Everything from a run becomes a text node or an attribute, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Marks that change the direction of a text are spelled out, so that nothing reads as what it is not. */
export const visible = (text) => (typeof text !== "string" ? text : text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16)}`));

const put = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = visible(value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map(visible));
  return element;
};

export const h = (tag, attributes = {}, ...children) => put(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

/** A select with {value, title} choices; `act` receives the chosen value. */
export const select = (label, choices, chosen, act) => {
  const options = choices.map(({ value, title }) => h("option", { value, text: title, selected: value === chosen }));
  const box = h("select", { "aria-label": label, onchange: (event) => act(event.target.value) }, options);
  box.value = chosen;
  return h("label", { class: "field" }, h("span", { text: label }), box);
};

// ---- texts

export const MISSING = "–";

export const number = (value) => {
  if (value === null || value === undefined) return MISSING;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return Math.abs(value) < 1e6 ? String(value) : value.toExponential(3);
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
};

export const count = (value) => value.toLocaleString("en");

export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

const two = (value) => String(value).padStart(2, "0");

export const duration = (seconds) => {
  if (seconds === null || seconds === undefined) return MISSING;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
};

export const ago = (time) => {
  if (!time) return MISSING;
  const seconds = Math.max(0, Date.now() / 1000 - time);
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"]];
  for (const [length, unit] of units) if (seconds >= length) return `${plural(Math.floor(seconds / length), unit)} ago`;
  return "just now";
};

export const badge = (state) => h("span", { class: `badge ${state.replaceAll(" ", "-")}`, text: state });

const STATES = ["done", "stopped", "running", "diverged", "failed", "pending"];

/** Trials by state as one bar. */
export const stateBar = (states) => {
  const known = STATES.filter((state) => states[state]);
  const words = known.map((state) => `${states[state]} ${state}`).join(", ");
  const parts = known.map((state) => {
    const part = h("span", { class: state, title: `${states[state]} ${state}` });
    part.style.flexGrow = states[state];
    return part;
  });
  return h("div", { class: "states", role: "img", "aria-label": words || "no trials yet" }, parts);
};

export const stateWords = (states) => STATES.filter((state) => states[state])
  .map((state) => h("span", { class: "state-word" }, h("i", { class: state }), `${count(states[state])} ${state}`));
