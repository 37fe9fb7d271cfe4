// Loads the page again every few seconds while it is visible, and replaces it if it has changed. If not, the server only
// sends the time of the facts. The script also counts their age, so that a page whose server does not answer is marked.
// Without this script, a page shows its age when loaded.
const every = Number(document.body.dataset.refresh || 0) * 1000;
const PATIENCE_MS = 60000; // for one answer; the next request waits for it, so that a slow store has one request per page
let loaded = performance.now();
let loading = false;
let why = document.querySelector(".asof")?.dataset.why ?? ""; // the facts are old

const count = () => {
  const line = document.querySelector(".asof");
  if (!line) return;
  const age = Number(line.dataset.age) + (performance.now() - loaded) / 1000;
  const old = age > Number(line.dataset.old);
  line.classList.toggle("old", old);
  const [number, unit] = age < 120 ? [age, "s"] : age < 7200 ? [age / 60, "min"] : [age / 3600, "h"];
  const reason = loading ? "waiting for an answer" : why;
  line.querySelector(".age").textContent = old ? `, ${Math.round(number)}\u00a0${unit} old${reason && `: ${reason}`}` : "";
};

// Someone who types, has chosen something or has marked a text is not interrupted.
const busy = () =>
  document.hidden ||
  ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName) ||
  !document.getSelection()?.isCollapsed;

const load = async () => {
  const began = performance.now();
  const line = document.querySelector(".asof");
  const answer = await fetch(location.href, {
    credentials: "same-origin",
    headers: { "If-None-Match": line?.dataset.etag ?? "" },
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 304 && line) {
    const time = line.querySelector("time");
    time.dateTime = answer.headers.get("Tussock-As-Of");
    time.textContent = time.dateTime.slice(0, 19).replace("T", "\u00a0");
    line.dataset.age = answer.headers.get("Tussock-Age");
    loaded = began;
    why = answer.headers.get("Tussock-Waits") ?? "";
    return;
  }
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  const isError = "error" in document.body.dataset; // then there are no facts to keep
  why = answer.ok ? (next.querySelector(".asof")?.dataset.why ?? "") : next.querySelector("h1")?.textContent ?? `the answer is ${answer.status}`;
  if (!next.querySelector(".asof") || busy() || (!answer.ok && !isError)) return;
  const open = [...document.querySelectorAll("details")].map((one) => one.open);
  const places = [...document.querySelectorAll(".graph, .scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  document.body.replaceChildren(...next.body.childNodes);
  if (answer.ok) delete document.body.dataset.error;
  document.querySelectorAll("details").forEach((one, n) => (one.open = open[n] ?? one.open));
  document.querySelectorAll(".graph, .scroll").forEach((one, n) => places[n] && one.scrollTo(...places[n]));
  loaded = began;
};

const refresh = async () => {
  if (busy() || loading) return;
  loading = true;
  try {
    await load();
  } catch {
    why = "Airflow does not answer";
  } finally {
    loading = false;
    count();
  }
};

if (every) setInterval(refresh, every);
setInterval(count, 1000);
