// Keeps <main> up to date, pairs this device, and signs what a person asks for. Reading works without it.
"use strict";

const main = document.getElementById("main");
const news = document.getElementById("news");
const base64url = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

async function wordsOf(reply) {
  const problem = await reply.json().catch(() => ({ detail: `the page answered ${reply.status}` }));
  const words = [problem.detail || problem.title, problem.why, problem.try && `try: ${problem.try}`];
  return words.filter(Boolean).join("; ");
}

function show(line, words, isBad) {
  line.textContent = words;
  line.classList.toggle("bad", isBad);
}

// --- the key of this device: the browser signs with it and never gives it out ---

function stored(mode, use) {
  return new Promise((done, failed) => {
    const opening = indexedDB.open("ralphd", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    opening.onerror = () => failed(opening.error);
    opening.onsuccess = () => {
      const work = opening.result.transaction("keys", mode);
      const asked = use(work.objectStore("keys"));
      work.oncomplete = () => done(asked.result);
      work.onabort = () => failed(work.error);
      opening.result.close();  // once the work is over
    };
  });
}

// --- the news, then the content of this page ---

const came = new Map();  // what came of the last request to each ralph, and whether it was refused
let source = null;
let isOver = false;  // the device was revoked
let isFetching = false;
let isStale = false;
let asking = null;  // the question that is open: nothing moves below the finger
let pauseMs = 1000;
let retry = 0;
let ageing = 0;
let skewMs = 0;  // how far the computer's clock is ahead of this one

const asOf = () => document.getElementById("as-of")?.textContent || "";

function away() {
  if (!isOver) news.textContent = `Not connected, as of ${asOf()}`;
}

async function refresh() {
  clearTimeout(ageing);
  isStale = isFetching || asking !== null;
  if (isStale || isOver) return;
  isFetching = true;
  try {
    const headers = { "Ralph-Part": "1" };
    const reply = await fetch(location.pathname, { headers, cache: "no-store", signal: AbortSignal.timeout(20000) });
    if (reply.status === 401) {
      isOver = true;
      disconnect();
      dress();
      news.textContent = "This device is no longer paired. To pair it again, on the computer: ralphctl web pair";
    } else if (!reply.ok) {
      news.textContent = `${await wordsOf(reply)}; as of ${asOf()}`;
    } else {
      const html = await reply.text();
      if (asking) isStale = true;
      else swap(html);
      skewMs = (Date.parse(document.getElementById("as-of")?.dateTime) || Date.now()) - Date.now();
      if (source) news.textContent = "";
    }
  } catch {
    away();
  }
  isFetching = false;
  const every = main.querySelector("[data-every]")?.dataset.every || 60;  // "2m ago" ages
  if (!document.hidden && source) ageing = setTimeout(refresh, isStale && !asking ? 300 : every * 1000);
}

function swap(html) {
  const isAtEnd = main.querySelector(".log") && innerHeight + scrollY > document.body.scrollHeight - 60;
  const open = [...main.querySelectorAll("details[open][id]")].map((each) => each.id);
  const focused = document.activeElement;
  const spot = main.contains(focused) && focused.closest("[id]");
  const index = spot && [...spot.querySelectorAll("a, summary")].indexOf(focused);
  const top = scrollY;
  main.replaceChildren(document.createRange().createContextualFragment(html));
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  dress();
  const there = spot && document.getElementById(spot.id);
  if (spot) ((index < 0 ? there : there?.querySelectorAll("a, summary")[index]) || main).focus({ preventScroll: true });
  scrollTo({ top: isAtEnd ? document.body.scrollHeight : top, behavior: "instant" });
  document.title = main.querySelector("[data-title]")?.dataset.title || document.title;
}

function dress() {
  for (const acts of main.querySelectorAll(".acts[data-ralph]")) {
    acts.querySelectorAll("button").forEach((each) => { each.disabled = isOver; });
    show(acts.querySelector(".came"), ...(came.get(acts.dataset.ralph) || ["", false]));
  }
}

function connect() {
  clearTimeout(retry);
  if (isOver || document.hidden || source) return;
  source = new EventSource("/news");
  source.onopen = () => { pauseMs = 1000; refresh(); };
  source.onmessage = ({ data }) => {
    const { ralph } = JSON.parse(data);
    const own = main.querySelector("h1[data-ralph]")?.dataset.ralph;
    if (!ralph || !own || own === ralph) refresh();
  };
  source.onerror = () => {  // after some errors it never opens again by itself
    disconnect();
    away();
    retry = setTimeout(() => { refresh(); connect(); }, pauseMs * (0.75 + Math.random() / 2));
    pauseMs = Math.min(pauseMs * 2, 30000);
  };
}

function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function wake() {
  disconnect();
  answered();
  pauseMs = 1000;
  connect();
}

// --- acting ---

async function act(acts, action) {
  const { ralph } = acts.dataset;
  came.set(ralph, ["asking …", false]);
  dress();
  try {
    const key = await stored("readonly", (keys) => keys.get("device"));
    if (!key) throw new Error("this browser has no key to act with; pair it again: ralphctl web pair --act");
    const at = Math.floor((Date.now() + skewMs) / 1000);
    const nonce = base64url(crypto.getRandomValues(new Uint8Array(18)));
    const body = JSON.stringify({ action, ralph, at, nonce });
    const signed = new TextEncoder().encode(`POST /act\n${location.origin}\n${body}`);
    const signature = base64url(await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, key, signed));
    const headers = { "Content-Type": "application/json", "Ralph-Signature": signature };
    const reply = await fetch("/act", { method: "POST", body, headers, signal: AbortSignal.timeout(60000) });
    came.set(ralph, reply.ok ? [(await reply.json()).words, false] : [await wordsOf(reply), true]);
  } catch (fault) {
    const isAway = fault instanceof TypeError || fault.name === "TimeoutError";
    came.set(ralph, [isAway ? "no answer: not connected" : fault.message, true]);
  }
  dress();
  refresh();
}

function ask(acts, button) {
  answered();
  const row = document.createElement("div");
  row.className = "acts";
  row.innerText = button.dataset.question;
  const [yes, no] = [button.textContent, "No"].map((words) => {
    const each = row.appendChild(document.createElement("button"));
    each.type = "button";
    each.textContent = words;
    return each;
  });
  yes.className = "yes";
  acts.hidden = true;
  acts.after(row);
  asking = { acts, row };
  no.focus();
  no.onclick = () => { answered(); button.focus(); };
  yes.onclick = () => { answered(); act(acts, button.dataset.action); };
}

function answered() {
  if (!asking) return;
  asking.row.remove();
  asking.acts.hidden = false;
  asking = null;
  if (isStale) refresh();
}

main.addEventListener("click", ({ target }) => {
  const button = target.closest("button[data-action]");
  const acts = button?.closest(".acts");
  if (acts && button.dataset.question) ask(acts, button);
  else if (acts) act(acts, button.dataset.action);
});

// --- pairing ---

async function pair(form, line, waiting) {
  const way = { name: "ECDSA", namedCurve: "P-256" };
  const made = globalThis.crypto?.subtle ? await crypto.subtle.generateKey(way, false, ["sign"]) : null;
  const { kty, crv, x, y } = made ? await crypto.subtle.exportKey("jwk", made.publicKey) : {};
  const body = { code: form.code.value.trim(), name: form.device.value.trim(), key: made && { kty, crv, x, y } };
  const headers = { "Content-Type": "application/json" };
  let reply = await fetch("/pair", { method: "POST", headers, body: JSON.stringify(body) });
  if (!reply.ok) return show(line, await wordsOf(reply), true);
  const { ticket, number } = await reply.json();
  document.getElementById("number").textContent = number;
  form.hidden = !(waiting.hidden = false);
  do {
    const again = new Promise((done) => setTimeout(done, 1000));  // the phone slept, or the network went
    reply = await fetch(`/pair/${encodeURIComponent(ticket)}`, { cache: "no-store" }).catch(() => again);
  } while (!reply || reply.status === 202);
  form.hidden = !(waiting.hidden = true);
  if (!reply.ok) return show(line, await wordsOf(reply), true);
  const mayAct = (await reply.json()).role === "act" && made;
  await stored("readwrite", (keys) => mayAct ? keys.put(made.privateKey, "device") : keys.delete("device"));
  location.replace("/");
}

document.body.classList.add("scripted");
const form = document.getElementById("pair");
if (form) {
  const line = document.getElementById("pairing");
  form.hidden = false;
  form.code.value = location.hash.slice(1);
  if (location.hash) history.replaceState(null, "", "/pair");  // the code does not stay in the history
  form.device.value = /iPhone|iPad|Android|Mac|Windows|Linux/.exec(navigator.userAgent)?.[0] || "";
  form.onsubmit = async (event) => {
    event.preventDefault();
    form.querySelector("button").disabled = true;
    show(line, "", false);
    const waiting = document.getElementById("waiting");
    await pair(form, line, waiting).catch((fault) => show(line, `not paired: ${fault.message}`, true));
    form.querySelector("button").disabled = false;
  };
} else {
  dress();
  connect();
  document.addEventListener("visibilitychange", wake);
  addEventListener("online", wake);
  addEventListener("offline", () => { disconnect(); away(); });
  addEventListener("pageshow", (event) => { if (event.persisted) wake(); });
}
