// A slider for each latent of a trained model, the decoded image, and the nearest image of the data.

import { get } from "./api.js";
import { h, number, plural } from "./dom.js";

const picture = (caption) => {
  const image = h("img", { class: "pixels", alt: caption, width: 192, height: 192 });
  const note = h("small");
  const set = (data, text = "") => { image.src = data; note.textContent = text; };
  return { element: h("figure", { class: "view" }, image, h("figcaption", {}, h("b", { text: caption }), note)), set };
};

const range = (label, attributes, act) => {
  const value = h("output");
  const input = h("input", { type: "range", "aria-label": label, ...attributes, oninput: () => { show(); act(Number(input.value)); } });
  const show = () => { value.textContent = attributes.step === 1 ? input.value : Number(input.value).toFixed(2); };
  const set = (wanted) => { input.value = wanted; show(); };
  return { input, value, set };
};

/** Asks for the newest state only: while an answer is on its way, later wishes replace earlier ones. */
const latest = (ask) => {
  let [isBusy, wanted] = [false, null];
  return async (...wish) => {
    wanted = wish;
    if (isBusy) return;
    isBusy = true;
    try {
      while (wanted) { const now = wanted; wanted = null; await ask(...now); }
    } finally { isBusy = false; }
  };
};

export const latentsPanel = async (run, id, signal) => {
  const model = await get("model", { run, id }, signal);
  const [input, decoded, nearest] = ["input", "decoded", "nearest in the data"].map(picture);
  const code = model.latents.map(() => 0);
  const sentence = h("p", { class: "hint", role: "status" });
  const said = (error) => { if (error.name !== "AbortError") sentence.textContent = error.message; };

  const decode = latest(async () => {
    const found = await get("decode", { run, id, z: code.join(",") }, signal);
    decoded.set(found.image);
    const factors = model.factors.map(({ name }, i) => `${name} ${found.factors[i]}`).join(", ");
    nearest.set(found.nearest, `${factors}; difference ${number(found.error)}`);
  });
  const encode = latest(async () => {
    const found = await get("encode", { run, id, factors: factors.join(",") }, signal);
    input.set(found.image, model.factors.map(({ name }, i) => `${name} ${factors[i]}`).join(", "));
    found.z.forEach((value, latent) => { code[latent] = value; });
    model.latents.forEach(({ index }, i) => sliders[i].set(code[index]));
    await decode();
  });

  const factors = [...model.start];
  const most = Math.max(...model.latents.map(({ kl }) => kl), 1e-9);
  const sliders = model.latents.map(({ index, low, high }) =>
    range(`latent ${index}`, { min: low, max: high, step: (high - low) / 200 }, (value) => { code[index] = value; decode().catch(said); }));
  const rows = model.latents.map(({ index, kl }, i) => {
    const bar = h("span", { class: "kl-bar" });
    bar.style.width = `${Math.max(2, (100 * kl) / most)}%`;
    return h("div", { class: "slider", "data-latent": index }, h("b", { text: `z${index}` }), h("span", { class: "kl", title: `${number(kl)} nats to the prior` }, bar, h("small", { text: `${number(Number(kl.toPrecision(2)))} nats` })), sliders[i].input, sliders[i].value);
  });
  const choosers = model.factors.map(({ name, size }, i) => {
    const one = range(`factor ${name}`, { min: 0, max: size - 1, step: 1 }, (value) => { factors[i] = value; encode().catch(said); });
    one.set(factors[i]);
    return h("div", { class: "slider factor" }, h("b", { text: name }), one.input, one.value);
  });
  const reset = h("button", { type: "button", text: "Back to the input's code", onclick: () => encode().catch(said) });
  const zero = h("button", { type: "button", text: "All latents to 0", onclick: () => {
    code.fill(0);
    for (const slider of sliders) slider.set(0);
    decode().catch(said);
  } });
  const searched = model.whole ? `all ${plural(model.searched, "image")}` : `${plural(model.searched, "sampled image")}, then improved factor by factor`;
  sentence.textContent = `Checkpoint of step ${model.step}. The nearest image is searched for among ${searched}. ${model.notes.join(" ")}`;
  await encode();
  return h("div", { class: "latents" },
    h("div", { class: "seen" },
      h("div", { class: "views" }, input.element, decoded.element, nearest.element),
      h("fieldset", {}, h("legend", { text: "Input image, by its factors" }), choosers)),
    h("fieldset", {}, h("legend", { text: "Latents, the most informative first" }), rows, h("p", { class: "tools" }, reset, zero)),
    sentence);
};
