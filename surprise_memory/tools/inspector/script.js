"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const episode = data.episode;
const T = episode.rewards.length;
const TOP = 5; // recalled steps that are shown as pictures
const TV = "watching the TV";
const GOAL = "task reward";
const POLITE = { ntm: "a sharp softmax of the cosine", softmax: "a softmax of the product",
                 cosine: "the cosine", "cosine-mean": "the cosine over the number of slots" };
const updates = []; // what is to be done when the step changes, one function for each part
let now = 0;

const $ = (id) => document.getElementById(id);

/* An element with a class, text and a parent. */
function make(tag, parent, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

/* A number in three digits that count. */
function digits(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size < 0.001 || size >= 10000) return x.toExponential(1);
  return size >= 100 ? x.toFixed(0) : x.toPrecision(3);
}

const percent = (x) => (x > 0 && x < 0.01 ? "<1 %" : (100 * x).toFixed(0) + " %");

/* --- the steps in view: all of them, or SPAN around the one now --- */

const SPAN = 100;
const MANY = 150; // steps from which on there is a zoom
let zoomed = false;
let from = 0;
let to = Math.max(1, T - 1);

/* The view stays where it is until the step leaves it: nothing moves below a dragged pointer. */
function look(t) {
  if (!zoomed) {
    [from, to] = [0, Math.max(1, T - 1)];
  } else if (t < from || t > to || to - from !== SPAN) {
    from = Math.max(0, Math.min(T - 1 - SPAN, t - SPAN / 2));
    to = from + SPAN;
  }
  document.body.classList.toggle("dense", to - from > MANY);
  for (const svg of document.querySelectorAll("svg.time")) {
    svg.setAttribute("viewBox", `${from} 0 ${to - from} 1`);
  }
}

/* Where a step is between the left and the right edge of the view, from 0 to 1. */
const across = (t) => (T > 1 ? (t - from) / (to - from) : 0.5);

/* A picture over time, of shapes in steps and from 0 (top) to 1. */
const timeline = (shapes, style = "") =>
  `<svg class="time" viewBox="${from} 0 ${to - from} 1" preserveAspectRatio="none"` +
  ` style="${style}">${shapes}</svg>`;

/* The picture after a step; -1 is the start. */
const picture = (t) => data.images.uris[data.images.index[t + 1]];

/* A click on an element, or a drag along it, goes to the step below the pointer. */
function scrub(element) {
  const go = (event) => {
    const box = element.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    show(Math.round(from + share * (to - from)));
  };
  element.addEventListener("pointerdown", go);
  element.addEventListener("pointermove", (event) => event.buttons && go(event));
}

function cursor(parent) {
  const line = make("div", parent, "cursor");
  updates.push((t) => { line.style.left = 100 * across(t) + "%"; });
}

/* --- curves --- */

/* series: [{name, values, colour}] in one plot. */
function chart(parent, title, hint, series, height = "") {
  const box = make("div", parent, "chart");
  const head = make("div", box, "head");
  const most = make("span", head, "most");
  make("b", head, "", title);
  make("span", head, "hint", hint);
  const row = make("div", box, "row");
  const keys = make("div", row, "keys");
  const plot = make("div", row, `plot ${height}`);
  const all = series.flatMap((one) => one.values);
  const low = Math.min(0, ...all);
  const high = Math.max(...all, low + 1e-9);
  const y = (value) => 0.96 - (0.92 * (value - low)) / (high - low);
  let paths = "";
  for (const [i, one] of series.entries()) {
    const under = series.length - 1 - i; // wider below narrower: equal curves stay visible
    const points = one.values.map((value, t) => `${t},${y(value).toFixed(4)}`);
    if (T === 1) points.push(`1,${y(one.values[0]).toFixed(4)}`);
    paths += `<path class="${under ? "under" : ""}" d="M${points.join("L")}"` +
      ` style="stroke:${one.colour};--under:${under}"/>`;
  }
  plot.innerHTML = timeline(paths);
  most.textContent = `up to ${digits(high)}`;
  cursor(plot);
  scrub(plot);
  for (const one of series) key(keys, plot, one, y);
}

/* A series's name with its value now, and a dot on its curve. */
function key(keys, plot, one, y) {
  const line = make("div", keys, "key");
  line.style.setProperty("--c", one.colour);
  make("i", line);
  make("span", line, "", one.name);
  const value = make("output", line);
  value.dataset.series = one.name;
  const dot = make("div", plot, "dot");
  dot.style.setProperty("--c", one.colour);
  updates.push((t) => {
    value.textContent = digits(one.values[t]);
    dot.style.left = 100 * across(t) + "%";
    dot.style.top = 100 * y(one.values[t]) + "%";
  });
}

/* What happened, one lane for each name. */
function lanes(parent) {
  const names = Object.keys(episode.events);
  if (!names.length) return;
  const box = make("div", parent, "chart");
  const head = make("div", box, "head");
  make("b", head, "", "Events");
  make("span", head, "hint", "what each step led to");
  for (const name of names) lane(box, name, episode.events[name]);
}

function lane(box, name, on) {
  const row = make("div", box, "row lane");
  const label = make("div", row, "name", name);
  const track = make("div", row, "track");
  let rects = "";
  for (let t = 0; t < T; t++) {
    const start = t;
    while (on[t]) t++;
    if (t > start) rects += `<rect x="${start - 0.5}" y="0" width="${t - start}" height="1"/>`;
  }
  const colour = name === TV ? "tv" : name === GOAL ? "return" : "grey";
  track.innerHTML = timeline(rects, `fill:var(--${colour})`);
  cursor(track);
  scrub(track);
  updates.push((t) => label.classList.toggle("on", on[t]));
}

/* --- the memories --- */

function recallCard(card, run) {
  const recall = run.recall;
  card.hidden = !recall;
  if (!recall) return;
  const strip = card.querySelector(".strip");
  const thumbs = card.querySelector(".thumbs");
  const say = card.querySelector(".say");
  const bars = make("div", strip);
  cursor(strip);
  scrub(strip);
  updates.push((t) => {
    const weights = recall.weights[t];
    const found = weights.map((w, i) => ({ step: recall.steps[recall.oldest[t] + i], weight: w / 1000 }));
    bars.innerHTML = weightBars(found);
    const sizes = (a, b) => Math.abs(b.weight) - Math.abs(a.weight);
    const top = found.slice().sort(sizes).slice(0, TOP);
    thumbs.replaceChildren();
    for (const one of top) thumbnail(thumbs, one, recall.sums_to_one);
    say.textContent = recallSentence(recall, run, found, top, t);
  });
}

function weightBars(found) {
  const most = Math.max(0.001, ...found.map((one) => Math.abs(one.weight)));
  let rects = "";
  for (const one of found) {
    const height = Math.abs(one.weight) / most;
    const x = one.step - 0.5;
    rects += `<rect x="${x}" y="${1 - height}" width="1" height="${height}"/>`;
  }
  return timeline(rects, "fill:var(--novelty)");
}

function thumbnail(parent, one, shares) {
  const button = make("button", parent, "thumb");
  button.title = `Go to step ${one.step}`;
  button.dataset.step = one.step;
  const image = make("img", button);
  image.src = picture(one.step);
  image.alt = `after step ${one.step}`;
  const bar = make("div", button, "bar");
  make("i", bar).style.width = 100 * Math.min(1, Math.abs(one.weight)) + "%";
  make("b", button, "", shares ? percent(one.weight) : digits(one.weight));
  button.append(`step ${one.step}`);
  button.addEventListener("click", () => show(one.step));
}

function recallSentence(recall, run, found, top, t) {
  if (!found.length) return "M is empty: the episode has just begun.";
  const others = found.length - top.length;
  let words = `M holds ${found.length} ${found.length === 1 ? "step" : "steps"}`;
  if (recall.sums_to_one && others > 0) {
    const seen = top.reduce((sum, one) => sum + one.weight, 0);
    words += `; the ${others} not shown have ${percent(Math.max(0, 1 - seen))} of the weight`;
  }
  const norm = run.surprise_norm[t];
  const ratio = norm > 0 ? recall.norm[t] / norm : 0;
  return `${words}. What came back is ${digits(ratio)} times as large as the surprise. ` +
    `A weight is ${POLITE[recall.read] || recall.read}.`;
}

function rebuiltCard(card, run) {
  const rebuilt = run.rebuilt;
  card.hidden = !rebuilt;
  if (!rebuilt) return;
  const width = rebuilt.width;
  const packed = Uint8Array.from(atob(rebuilt.bytes), (letter) => letter.charCodeAt(0));
  const numbers = new Int8Array(packed.buffer);
  const heat = card.querySelector(".heat");
  const asked = strip(heat, "asked: q", width);
  const answer = strip(heat, "rebuilt: W(q)", width);
  const left = strip(heat, "left: W(q) \u2212 q", width);
  halves(heat, rebuilt);
  const say = card.querySelector(".say");
  updates.push((t) => {
    const q = numbers.subarray(2 * width * t, 2 * width * t + width);
    const w = numbers.subarray(2 * width * t + width, 2 * width * (t + 1));
    asked(q);
    answer(w);
    left(Int16Array.from(w, (value, i) => value - q[i]));
    say.replaceChildren("Share left: ");
    const share = make("b", say, "share", percent(rebuilt.left[t]));
    share.dataset.share = rebuilt.left[t];
    say.append(` of |q|\u00b2. Blue is positive, orange negative; the darkest is ` +
      `\u00b1${digits(rebuilt.largest[t])}.`);
  });
}

/* A row of coloured cells; returns the function that fills it with numbers from -127 to 127. */
function strip(parent, label, width) {
  const row = make("div", parent);
  make("span", row, "", label);
  const canvas = make("canvas", row);
  canvas.width = width;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  const ink = context.createImageData(width, 1);
  const plus = rgb("--novelty");
  const minus = rgb("--norm");
  return (values) => {
    values.forEach((value, i) => {
      const colour = value > 0 ? plus : minus;
      const depth = Math.min(1, Math.abs(value) / 127);
      for (let c = 0; c < 3; c++) ink.data[4 * i + c] = 255 + depth * (colour[c] - 255);
      ink.data[4 * i + 3] = 255;
    });
    context.putImageData(ink, 0, 0);
  };
}

/* "#1b6fc4", of a variable of the style sheet, as three numbers. */
function rgb(variable) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/* Which numbers of q are M's recall and which the surprise. */
function halves(parent, rebuilt) {
  const row = make("div", parent);
  make("span", row);
  const line = make("div", row, "halves");
  line.style.display = "flex";
  const share = rebuilt.recalled / rebuilt.width;
  if (share) make("span", line, "", "recalled u\u1d49").style.width = 100 * share + "%";
  make("span", line, "", "surprise u").style.width = 100 * (1 - share) + "%";
}

/* --- the map --- */

function mapCard(card, run) {
  const known = episode.places.length === T;
  card.hidden = !known;
  if (!known) return;
  const [columns, rows] = episode.grid;
  const select = card.querySelector("select");
  const grid = card.querySelector(".grid");
  make("img", grid).src = picture(-1);
  const over = make("div", grid);
  over.innerHTML = `<svg viewBox="0 0 ${columns} ${rows}" preserveAspectRatio="none"></svg>`;
  const svg = over.firstChild;
  const say = card.querySelector(".say");
  let mark = "";
  const colour = () => {
    const cells = means(run[select.value]);
    const most = Math.max(1e-12, ...cells.map((cell) => cell.mean));
    mark = "";
    for (const { x, y, mean } of cells) {
      const depth = 0.06 + 0.86 * Math.max(0, mean) / most;
      mark += `<rect class="cell" x="${x}" y="${y}" width="1" height="1" opacity="${depth}"/>`;
    }
    say.textContent = `${cells.length} cells entered; the darkest has ${digits(most)}.`;
  };
  const here = (t) => {
    const [x, y] = episode.places[t];
    svg.innerHTML = `${mark}<rect class="here" x="${x}" y="${y}" width="1" height="1"/>`;
  };
  select.addEventListener("change", () => { colour(); here(now); });
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
    nextVisit(x, y);
  });
  colour();
  updates.push(here);
}

/* The mean of a value in every cell that was entered. */
function means(values) {
  const cells = new Map();
  episode.places.forEach(([x, y], t) => {
    const cell = cells.get(`${x},${y}`) || { x, y, sum: 0, visits: 0 };
    cell.sum += values[t];
    cell.visits += 1;
    cell.mean = cell.sum / cell.visits;
    cells.set(`${x},${y}`, cell);
  });
  return [...cells.values()];
}

function nextVisit(x, y) {
  for (let i = 1; i <= T; i++) {
    const t = (now + i) % T;
    if (episode.places[t][0] === x && episode.places[t][1] === y) return show(t);
  }
}

/* --- the page --- */

function runPanel(run) {
  const panel = $("run").content.cloneNode(true).firstElementChild;
  $("runs").append(panel);
  panel.querySelector("h2").textContent = run.method;
  const from = panel.querySelector(".from");
  from.textContent = run.run;
  from.title = run.run;
  const charts = panel.querySelector(".charts");
  chart(charts, "Surprise |u|", "how wrong the prediction was",
    [{ name: "|u|", values: run.surprise_norm, colour: "var(--norm)" }]);
  const stages = Object.entries(run.stages);
  const paid = [{ name: "novelty e", values: run.novelty, colour: "var(--novelty)" }];
  stages.forEach(([name, values], i) => {
    paid.push({ name: `after ${name}`, values, colour: `var(--stage-${i % 4})` });
  });
  const formula = run.power === 1 ? "" : ` (|v| to the power of ${run.power})`;
  chart(charts, "Novelty e", `what the memory cannot rebuild of it${formula}`, paid, "tall");
  chart(charts, "Scaled reward", "the bonus paid for this step",
    [{ name: "paid", values: run.scaled, colour: "var(--scaled)" }]);
  lanes(charts);
  recallCard(panel.querySelector(".recall"), run);
  rebuiltCard(panel.querySelector(".rebuilt"), run);
  mapCard(panel.querySelector(".map"), run);
}

function heading() {
  $("env").textContent = episode.env;
  document.title = `${episode.env}: inspector`;
  const total = episode.rewards.reduce((sum, reward) => sum + reward, 0);
  const ends = { terminated: "It ended by itself.", truncated: "The time limit ended it.",
                 cut: `It went on; only its first ${T} steps were recorded.` };
  let words = `One episode of ${T} steps (seed ${episode.seed}), played by ${episode.player}. ` +
    `Task return ${digits(total)}. ${ends[episode.end]}`;
  if (data.runs.length > 1) words += " All bonuses are asked about the same steps.";
  $("about").textContent = words;
}

function here(t) {
  $("frame").src = picture(t);
  $("step").value = t;
  $("now").textContent = `step ${t} of ${T - 1}`;
  $("action").textContent = episode.actions[t];
  $("reward").textContent = digits(episode.rewards[t]);
  const box = $("events");
  box.replaceChildren();
  for (const [name, on] of Object.entries(episode.events)) {
    const kind = name === TV ? " tv" : name === GOAL ? " goal" : "";
    if (on[t]) make("span", box, "badge" + kind, name);
  }
  if (!box.children.length) box.textContent = "nothing special";
}

function show(t) {
  now = Math.max(0, Math.min(T - 1, t));
  look(now);
  for (const update of updates) update(now);
}

let timer = 0;
function togglePlay() {
  if (timer) {
    clearInterval(timer);
    timer = 0;
  } else {
    if (now === T - 1) show(0);
    timer = setInterval(() => (now === T - 1 ? togglePlay() : show(now + 1)), 150);
  }
  $("play").textContent = timer ? "Stop" : "Play";
}

function keys(event) {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 10 : 1;
  const moves = { ArrowLeft: () => show(now - far), ArrowRight: () => show(now + far),
                  Home: () => show(0), End: () => show(T - 1) };
  if (event.target.tagName !== "BUTTON") moves[" "] = togglePlay;
  if (!(event.key in moves)) return;
  event.preventDefault();
  moves[event.key]();
}

heading();
data.runs.forEach(runPanel);
$("runs").classList.toggle("two", data.runs.length > 1);
$("step").max = T - 1;
$("step").addEventListener("input", () => show(Number($("step").value)));
$("back").addEventListener("click", () => show(now - 1));
$("next").addEventListener("click", () => show(now + 1));
$("play").addEventListener("click", togglePlay);
document.addEventListener("keydown", keys);
$("zoom").hidden = T <= MANY;
$("zoom").querySelector("span").textContent = `zoom in: ${SPAN} of ${T} steps`;
$("zoom").querySelector("input").addEventListener("change", (event) => {
  zoomed = event.target.checked;
  show(now);
});
updates.push(here);
show(Number(location.hash.slice(1)) || 0);
