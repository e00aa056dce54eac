// Lines over steps, drawn as SVG to the width of their box.

import { h, number, s } from "./dom.js";

const MARGIN = { left: 58, right: 14, top: 12, bottom: 34 };
const HEIGHT = 320;
export const COLOURS = 7;

/** Round numbers that cover a range. */
export const ticks = (low, high, wanted) => {
  const rough = (high - low) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * unit).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
};

const short = (value) => (Math.abs(value) >= 10000 ? `${Number((value / 1000).toPrecision(4))}k` : String(value));

const range = (curves) => {
  const steps = curves.flatMap((curve) => [curve.steps[0], curve.steps.at(-1)]);
  const values = curves.flatMap((curve) => [...curve.mean, ...(curve.low ?? []), ...(curve.high ?? [])]).filter(Number.isFinite);
  const [low, high] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
  const slack = (high - low || Math.abs(high) || 1) * 0.06;
  return { steps: [Math.min(0, ...steps), Math.max(...steps, 1)], values: [low - slack, high + slack] };
};

const path = (steps, values, x, y) => {
  let isDown = false;
  return steps.map((step, i) => {
    if (values[i] === null) { isDown = false; return ""; }
    const mark = `${isDown ? "L" : "M"}${x(step).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    isDown = true;
    return mark;
  }).join("");
};

const band = (curve, x, y) => {
  const there = curve.steps.map((step, i) => `${x(step).toFixed(1)} ${y(curve.high[i]).toFixed(1)}`);
  const back = curve.steps.map((step, i) => `${x(step).toFixed(1)} ${y(curve.low[i]).toFixed(1)}`).reverse();
  return `M${there.join("L")}L${back.join("L")}Z`;
};

const nearest = (steps, wanted) => steps.reduce((best, step, i) => (Math.abs(step - wanted) < Math.abs(steps[best] - wanted) ? i : best), 0);

/** A chart of {name, steps, mean, low?, high?, trials} curves; `set` draws again, and it follows the width of its box. */
export const chart = (label) => {
  const drawing = s("svg", { class: "chart", role: "img", "aria-label": label });
  const tip = h("div", { class: "tip", hidden: true });
  const legend = h("ul", { class: "legend" });
  const empty = h("p", { class: "empty", hidden: true });
  const box = h("div", { class: "chart-box" }, drawing, tip, empty);
  const hidden = new Set();
  let curves = [];
  let scale = null;

  const shown = () => curves.filter((curve) => curve.steps.length && !hidden.has(curve.name));

  const draw = () => {
    const width = Math.max(280, box.clientWidth);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const some = shown();
    drawing.replaceChildren();
    if (!some.length) { scale = null; return; }
    const bounds = range(some);
    const across = (width - MARGIN.left - MARGIN.right) / (bounds.steps[1] - bounds.steps[0]);
    const up = (HEIGHT - MARGIN.top - MARGIN.bottom) / (bounds.values[1] - bounds.values[0]);
    const x = (step) => MARGIN.left + (step - bounds.steps[0]) * across;
    const y = (value) => HEIGHT - MARGIN.bottom - (value - bounds.values[0]) * up;
    scale = { x, y, step: (place) => (place - MARGIN.left) / across + bounds.steps[0], width };
    const right = width - MARGIN.right;
    for (const value of ticks(...bounds.values, 5)) {
      drawing.append(s("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) }),
        s("text", { class: "tick", x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end", text: short(value) }));
    }
    for (const step of ticks(...bounds.steps, Math.max(2, width / 130))) {
      drawing.append(s("text", { class: "tick", x: x(step), y: HEIGHT - 12, "text-anchor": "middle", text: short(step) }));
    }
    for (const curve of some) if (curve.low && curve.trials > 1) drawing.append(s("path", { class: `band c${curve.colour}`, d: band(curve, x, y) }));
    for (const curve of some) {
      drawing.append(s("path", { class: `line c${curve.colour}`, d: path(curve.steps, curve.mean, x, y) }));
      const last = curve.mean.findLastIndex((value) => value !== null);
      if (last >= 0 && some.length <= 24) drawing.append(s("circle", { class: `dot c${curve.colour}`, r: 3, cx: x(curve.steps[last]), cy: y(curve.mean[last]) }));
    }
    drawing.append(s("line", { class: "cross", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, x1: -10, x2: -10 }));
  };

  const point = (event) => {
    if (!scale) return;
    const frame = drawing.getBoundingClientRect();
    const wanted = scale.step((event.clientX - frame.left) * (scale.width / frame.width));
    const some = shown();
    const lines = some.map((curve) => ({ curve, at: nearest(curve.steps, wanted) }));
    const first = lines.reduce((a, b) => (Math.abs(a.curve.steps[a.at] - wanted) < Math.abs(b.curve.steps[b.at] - wanted) ? a : b));
    const step = first.curve.steps[first.at];
    const listed = lines.filter(({ curve, at }) => curve.steps[at] === step && curve.mean[at] !== null)
      .sort((a, b) => b.curve.mean[b.at] - a.curve.mean[a.at]).slice(0, 10);
    tip.replaceChildren(h("b", { text: `step ${step}` }), ...listed.map(({ curve, at }) =>
      h("span", {}, h("i", { class: `swatch c${curve.colour}` }), `${number(curve.mean[at])}  ${curve.name}`)));
    tip.hidden = false;
    const place = scale.x(step) * (frame.width / scale.width);
    tip.style.left = `${place > frame.width / 2 ? Math.max(0, place - tip.offsetWidth - 12) : place + 12}px`;
    for (const end of ["x1", "x2"]) drawing.querySelector(".cross")?.setAttribute(end, scale.x(step));
  };
  const leave = () => {
    tip.hidden = true;
    for (const end of ["x1", "x2"]) drawing.querySelector(".cross")?.setAttribute(end, -10);
  };
  box.addEventListener("pointermove", point);
  box.addEventListener("pointerleave", leave);

  const showLegend = () => {
    legend.replaceChildren(...curves.slice(0, 24).map((curve) => h("li", {}, h("button", {
      type: "button", "aria-pressed": String(!hidden.has(curve.name)), title: "Show or hide",
      onclick: (event) => {
        if (hidden.has(curve.name)) hidden.delete(curve.name); else hidden.add(curve.name);
        event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(curve.name)));
        draw();
      },
    }, h("i", { class: `swatch c${curve.colour}` }), curve.name, curve.trials > 1 ? h("small", { text: ` ${curve.trials}` }) : null))));
    legend.hidden = curves.length < 2 || curves.length > 24;
  };

  let names = "";
  const set = (found, sentence = "No trial has reported this number yet.") => {
    curves = found.map((curve, i) => ({ ...curve, colour: i % COLOURS }));
    empty.textContent = sentence;
    empty.hidden = shown().length > 0 || hidden.size > 0;
    const now = JSON.stringify(curves.map((curve) => [curve.name, curve.trials]));
    if (now !== names) { names = now; showLegend(); }
    draw();
  };
  const watch = (signal) => {
    const observer = new ResizeObserver(draw);
    observer.observe(box);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  };
  return { element: h("div", {}, box, legend), set, watch };
};
