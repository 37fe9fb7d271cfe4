// Loads the page again every few seconds while it is visible, and replaces it if it has changed. If not, the server only
// sends the time of the facts. The script also counts their age, so that a page whose server does not answer is marked.
// Without this script, a page shows its age when loaded.
const every = Number(document.body.dataset.refresh || 0) * 1000;
let loaded = performance.now();

const count = () => {
  const line = document.querySelector(".asof");
  if (!line) return;
  const age = Number(line.dataset.age) + (performance.now() - loaded) / 1000;
  const old = age > Number(line.dataset.old);
  line.classList.toggle("old", old);
  const text = age < 120 ? `${Math.round(age)} s` : age < 7200 ? `${Math.round(age / 60)} min` : `${Math.round(age / 3600)} h`;
  line.querySelector(".age").textContent = old ? `, ${text} old` : "";
};

// Someone who types, has chosen something or has marked a text is not interrupted.
const busy = () =>
  document.hidden ||
  ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName) ||
  !document.getSelection()?.isCollapsed;

const load = async () => {
  if (busy()) return;
  const began = performance.now();
  const line = document.querySelector(".asof");
  const answer = await fetch(location.href, { credentials: "same-origin", headers: { "If-None-Match": line?.dataset.etag ?? "" } });
  if (answer.status === 304 && line) {
    const time = line.querySelector("time");
    time.dateTime = answer.headers.get("Tussock-As-Of");
    time.textContent = time.dateTime.slice(0, 19).replace("T", " ");
    line.dataset.age = answer.headers.get("Tussock-Age");
    loaded = began;
    return;
  }
  if (!answer.ok || busy()) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!next.querySelector(".asof")) return;
  const open = [...document.querySelectorAll("details")].map((one) => one.open);
  const places = [...document.querySelectorAll(".graph, .scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  document.body.replaceChildren(...next.body.childNodes);
  document.querySelectorAll("details").forEach((one, n) => (one.open = open[n] ?? one.open));
  document.querySelectorAll(".graph, .scroll").forEach((one, n) => places[n] && one.scrollTo(...places[n]));
  loaded = began;
};

if (every) setInterval(() => load().catch(() => {}).then(count), every);
setInterval(count, 1000);
