"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("script");

  // ---- light and dark

  const theme = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-pressed", String(isDark()));
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);
  showTheme();

  // ---- commands

  // Where the browser keeps the clipboard shut, the command stays selected for the user's own keys.
  const copied = async (code) => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      return document.execCommand("copy");
    }
  };
  const copy = async (button) => {
    const done = await copied(button.previousElementSibling);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  // ---- figures in full size

  const enlarged = document.getElementById("enlarged");
  const enlarge = (button) => {
    const drawing = button.parentElement.querySelector("svg").cloneNode(true);
    drawing.removeAttribute("id");
    enlarged.querySelector("div").replaceChildren(drawing);
    enlarged.showModal();
  };

  // ---- tables that are wider than the page

  const boxes = [...document.querySelectorAll(".box")];
  const showCue = (box) => {
    const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("more-right", rest > 2);
  };
  const showCues = () => boxes.forEach(showCue);
  for (const box of boxes) box.addEventListener("scroll", () => showCue(box), { passive: true });
  addEventListener("resize", showCues);
  document.addEventListener("change", showCues);
  document.addEventListener("toggle", showCues, true);
  showCues();

  // ---- the table of trials

  const table = document.getElementById("trial-table");
  const bodies = table ? [...table.tBodies] : [];
  const collator = new Intl.Collator("en");
  const keyOf = (cell) => {
    if (cell.dataset.order) return Number(cell.dataset.order);
    return cell.textContent.trim() === "–" ? null : cell.textContent.trim();
  };
  const compared = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));

  // Missing values stand last in both directions.
  const sortBy = (header) => {
    const descending = header.getAttribute("aria-sort") === "ascending";
    for (const one of header.parentElement.cells) one.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = bodies.map((body) => [body, keyOf(body.rows[0].cells[header.cellIndex])]);
    const present = keyed.filter(([, key]) => key !== null);
    present.sort(([, a], [, b]) => (descending ? compared(b, a) : compared(a, b)));
    const missing = keyed.filter(([, key]) => key === null);
    table.append(...[...present, ...missing].map(([body]) => body));
  };

  const toggle = (button) => {
    const detail = button.closest("tbody").rows[1];
    detail.hidden = !detail.hidden;
    button.setAttribute("aria-expanded", String(!detail.hidden));
  };

  // ---- filters

  let texts = null;
  const textOf = (body, titles) => {
    const cells = [...body.rows[0].cells].map((cell) => cell.textContent.trim().toLowerCase());
    const cause = body.querySelector("pre");
    const pairs = cells.map((text, i) => titles[i].map((title) => `${title}=${text}`).join("\n"));
    return { plain: [...cells, cause ? cause.textContent.toLowerCase() : ""].join("\n"), pairs: `\n${pairs.join("\n")}\n` };
  };
  const namesOf = (th) => {
    const names = [th.textContent.trim(), th.title, th.title.split(".").pop()];
    return [...new Set(names.map((name) => name.toLowerCase()))];
  };
  const allTexts = () => {
    const headers = [...table.tHead.rows[0].cells];
    const titles = headers.map((th) => namesOf(th));
    return bodies.map((body) => textOf(body, titles));
  };
  // `seed=2` means 2 and not 20; of a text, the beginning is enough.
  const matches = (text, word) => {
    if (!word.includes("=")) return text.plain.includes(word);
    const value = word.slice(word.indexOf("=") + 1);
    const whole = value !== "" && !Number.isNaN(Number(value));
    return text.pairs.includes(`\n${word}${whole ? "\n" : ""}`);
  };
  const filter = () => {
    texts ??= allTexts();
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = document.getElementById("status").value;
    let shown = 0;
    bodies.forEach((body, i) => {
      const fits = (!status || body.dataset.status === status) && words.every((word) => matches(texts[i], word));
      body.classList.toggle("filtered", !fits);
      shown += fits;
    });
    document.getElementById("count").textContent = `${shown} of ${bodies.length} trials`;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.matches(".sort")) sortBy(button.parentElement);
    if (button?.matches(".open")) toggle(button);
    if (button?.matches(".copy")) copy(button);
    if (button?.matches(".enlarge")) enlarge(button);
    if (button?.matches(".close")) enlarged.close();
  });
  if (table) {
    document.getElementById("filter").addEventListener("input", filter);
    document.getElementById("status").addEventListener("change", filter);
    filter(); // a reloaded page keeps what was typed
  }
})();
