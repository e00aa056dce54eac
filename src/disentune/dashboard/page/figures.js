// The figures of the report, drawn for the rows of now.

import { address, get } from "./api.js";
import { h, select } from "./dom.js";
import { ofRun } from "./selection.js";

const isDark = () => getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1"
  || (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

const LABELS = { metric: "metric", x: "x", y: "y", by: "colour", split: "halves" };

export const figuresPanel = (run, signal) => {
  const list = h("div", { class: "figure-list", role: "listbox", "aria-label": "Figures" });
  const choices = h("div", { class: "tools" });
  const paper = h("figure", { class: "paper" }, h("p", { class: "empty", text: "Choose a figure." }));
  const element = h("section", { class: "figures" }, list, h("div", { class: "card" }, choices, paper));
  let offered = null;
  let spec = null;
  let asked = 0;

  const image = (found) => h("img", { src: address("drawing", { key: found.key, theme: isDark() ? "dark" : "light" }), alt: found.title });

  const show = (found) => {
    if (found.reason) {
      paper.replaceChildren(h("h3", { text: found.title }), h("p", { class: "empty", text: `${found.reason[0].toUpperCase()}${found.reason.slice(1)}.`.replace("..", ".") }));
      return;
    }
    const links = ["svg", "png"].map((as) => h("a", { href: address("drawing", { key: found.key, as }), download: `${spec.name}.${as}`, text: as.toUpperCase() }));
    paper.replaceChildren(h("h3", { text: found.title }), h("p", { class: "lead", text: found.question }), image(found),
      h("figcaption", { text: found.caption }), h("p", { class: "files" }, links));
    document.addEventListener("theme", () => paper.querySelector("img")?.replaceWith(image(found)), { signal });
  };

  const draw = async () => {
    const number = ++asked;
    paper.setAttribute("aria-busy", "true");
    try {
      const ids = onlyChosen ? ofRun(run).join(",") : "";
      const found = await get("figure", { run, spec: JSON.stringify(spec), ids }, signal);
      if (number === asked) show(found);
    } catch (error) {
      if (error.name !== "AbortError" && number === asked) paper.replaceChildren(h("p", { class: "empty", text: error.message }));
    } finally {
      if (number === asked) paper.removeAttribute("aria-busy");
    }
  };

  let onlyChosen = false;
  const field = (name) => {
    const words = name === "metric" || (spec.name === "scatter" && name !== "by") ? offered.metrics : offered.keys;
    const options = [{ value: "", title: "chosen by the run" }, ...words.map(({ key, title }) => ({ value: key, title }))];
    return select(LABELS[name], options, spec[name] ?? "", (value) => {
      if (value) spec[name] = value; else delete spec[name];
      draw();
    });
  };
  const showChoices = () => {
    const fields = offered.fields[spec.name].filter((name) => LABELS[name]).map(field);
    const box = h("input", { type: "checkbox", onchange: (event) => { onlyChosen = event.target.checked; draw(); } });
    box.checked = onlyChosen;
    const chosen = ofRun(run).length ? h("label", { class: "check" }, box, `only the ${ofRun(run).length} chosen trials`) : null;
    choices.replaceChildren(...fields, ...(chosen ? [chosen] : []), h("button", { type: "button", text: "Redraw", title: "Draw the current rows", onclick: draw }));
  };

  const pick = (one, button) => {
    spec = { ...one.spec };
    for (const other of list.children) other.setAttribute("aria-selected", String(other === button));
    showChoices();
    draw();
  };

  const open = async () => {
    if (offered) return;
    list.replaceChildren(h("p", { class: "hint", text: "Reading every row …" }));
    offered = await get("figures", { run }, signal);
    const items = offered.figures.map((one) => h("button", { type: "button", role: "option", class: one.suits ? null : "rest", text: one.title, onclick: (event) => pick(one, event.currentTarget) }));
    list.replaceChildren(...items);
    if (items.length) pick(offered.figures[0], items[0]);
  };
  return { element, open };
};
