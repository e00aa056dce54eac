// Questions to the server, and the rhythm in which they are asked again.

const link = document.getElementById("link");
const trouble = document.getElementById("trouble");

const showLink = (state, text) => {
  link.className = `link ${state}`;
  link.textContent = text;
};

/** A sentence above the page; empty removes it. */
export const complain = (text) => {
  trouble.hidden = !text;
  if (trouble.textContent !== text) trouble.textContent = text;
};

export const address = (name, params = {}) => {
  const known = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return `/api/${name}?${new URLSearchParams(known)}`;
};

/** The answer; an Error with the server's own sentence when it refuses. */
export const get = async (name, params, signal) => {
  let answer;
  try {
    answer = await fetch(address(name, params), { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    showLink("lost", "server stopped");
    throw new Error("The server does not answer. Start it again with: disentune dashboard");
  }
  showLink("live", "live");
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  const content = isJson ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw Object.assign(new Error(content.error), { status: answer.status });
  return content;
};

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

const shown = (signal) => new Promise((resolve) => {
  if (!document.hidden) { resolve(); return; }
  document.addEventListener("visibilitychange", resolve, { once: true });
  signal.addEventListener("abort", resolve, { once: true });
});

/** Acts now and again until the signal; waits while nobody looks. `act` may return another pause in ms. */
export const every = async (ms, act, signal, refused = (error) => complain(error.message)) => {
  while (!signal.aborted) {
    let next = ms;
    try {
      next = (await act()) ?? ms;
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      refused(error);
    }
    await pause(next, signal);
    await shown(signal);
  }
};
