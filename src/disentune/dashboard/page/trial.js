// One trial: sliders for its latents, curves, numbers, config, pictures, errors.

import { address, complain, every, get } from "./api.js";
import { chart } from "./chart.js";
import { badge, duration, h, number, select } from "./dom.js";
import { latentsPanel } from "./latents.js";
import { choose, isChosen } from "./selection.js";

const rows = (pairs) => h("table", { class: "plain" }, h("tbody", {}, pairs.map(([key, value]) => h("tr", {}, h("th", { scope: "row", text: key }), h("td", { class: "value", text: value })))));

const curvesCard = (run, id, signal) => {
  const lines = chart("A metric over the steps of this trial");
  const tools = h("div", { class: "tools" });
  let metric = "";
  const load = async () => {
    const found = await get("curves", { run, metric, ids: id }, signal);
    lines.set(found.curves);
  };
  const open = async (objective) => {
    const columns = await get("trials", { run }, signal);
    const metrics = columns.metrics.map(({ key, title }) => ({ value: key, title }));
    metric = objective ?? metrics[0]?.value ?? "";
    tools.replaceChildren(select("metric", metrics, metric, (value) => { metric = value; load(); }));
    lines.watch(signal);
    await every(2000, load, signal);
  };
  return { element: h("section", { class: "card" }, h("h2", { text: "Curve" }), tools, lines.element), open };
};

const picturesCard = (run, id, pictures) => {
  if (!pictures.steps.length) return pictures.failure ? h("section", { class: "card" }, h("h2", { text: "Pictures" }), h("p", { class: "hint", text: pictures.failure })) : null;
  const box = h("div", { class: "sheets" });
  const show = (step) => box.replaceChildren(...pictures.sheets.map((sheet) => h("figure", {}, h("figcaption", { text: sheet }), h("img", { src: address("picture", { run, id, step, sheet }), alt: `${sheet} at step ${step}`, loading: "lazy" }))));
  const steps = pictures.steps.map((step) => ({ value: String(step), title: `step ${step}` }));
  show(pictures.steps.at(-1));
  return h("section", { class: "card" }, h("h2", { text: "Pictures" }), h("div", { class: "tools" }, select("step", steps, steps.at(-1).value, show)), box, pictures.failure ? h("p", { class: "hint", text: pictures.failure }) : null);
};

const latentsCard = (run, id, found, signal) => {
  const body = h("div", {}, h("p", { class: "hint", text: found.no_sliders || "Building the model …" }));
  if (!found.no_sliders) {
    latentsPanel(run, id, signal).then((panel) => body.replaceChildren(panel))
      .catch((error) => { if (error.name !== "AbortError") body.replaceChildren(h("p", { class: "hint", role: "status", text: error.message })); });
  }
  return h("section", { class: "card", id: "latents" }, h("h2", { text: "Latent traversals" }), body);
};

export const trialView = async (root, [run, id], params, signal) => {
  const found = await get("trial", { run, id }, signal);
  const status = found.status;
  const box = h("input", { type: "checkbox", onchange: (event) => choose(`${run}:${id}`, event.target.checked) });
  box.checked = isChosen(`${run}:${id}`);
  const curve = curvesCard(run, id, signal);
  const facts = { arms: found.arms.join(", "), step: `${status.step} of ${found.config["training.steps"]}`, time: duration(status.seconds), attempts: String(status.attempts), node: status.node || "–", checkpoints: found.checkpoints.join(", ") || "none", folder: found.where };
  root.append(
    h("div", { class: "head" }, h("h1", {}, h("span", { text: id }), " ", badge(status.state)), h("label", { class: "check" }, box, "choose for a comparison")),
    status.cause ? h("p", { class: "note", text: status.cause.split("\n")[0] }) : "",
    latentsCard(run, id, found, signal),
    h("div", { class: "columns" },
      curve.element,
      h("section", { class: "card" }, h("h2", { text: "Last numbers" }), h("div", { class: "box tall" }, rows(found.metrics.map((one) => [one.key, one.value === null ? "–" : `${number(one.value)}  (step ${one.step})`]))))),
    ...[picturesCard(run, id, found.pictures)].filter(Boolean),
    h("div", { class: "columns" },
      h("section", { class: "card" }, h("h2", { text: "Config" }), h("div", { class: "box tall" }, rows(Object.entries(found.config).map(([key, value]) => [key, value === null ? "none" : String(value)])))),
      h("section", { class: "card" }, h("h2", { text: "Facts" }), h("div", { class: "box" }, rows(Object.entries(facts))))),
    found.errors || status.cause.includes("\n") ? h("section", { class: "card" }, h("h2", { text: "Errors" }), h("pre", { text: found.errors || status.cause, tabindex: "0" })) : "");
  const run_ = await get("run", { run }, signal);
  complain(run_.trouble);
  await curve.open(run_.objective?.metric);
};
