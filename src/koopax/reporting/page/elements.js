// Small parts of the page: elements, controls and tables. Text is always set as text, never as markup.

const report = JSON.parse(document.getElementById("document").textContent);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A copy of a template, and a way to find its named places. */
function instance(id) {
  const root = document.getElementById(id).content.firstElementChild.cloneNode(true);
  return { root, slot: (name) => root.querySelector(`[data-slot="${name}"]`), part: (name) => root.querySelector(`[data-part="${name}"]`) };
}

let controlCount = 0;

/** A row of choices of which one is taken. */
function choice(label, options, chosen, changed) {
  const name = `choice-${controlCount++}`;
  const labels = options.map(([value, text]) => {
    const input = element("input", { type: "radio", name, value, checked: value === chosen });
    input.addEventListener("change", () => changed(value));
    return element("label", {}, input, text);
  });
  return element("fieldset", { "data-control": label }, element("legend", {}, label), ...labels);
}

/** A list to pick from, with buttons for the one before and the one after. */
function picker(label, texts, changed) {
  const select = element("select", { "data-control": label }, ...texts.map((text, i) => element("option", { value: i }, text)));
  const go = (offset) => {
    select.selectedIndex = (select.selectedIndex + offset + texts.length) % texts.length;
    changed(select.selectedIndex);
  };
  select.addEventListener("change", () => changed(select.selectedIndex));
  const step = (text, offset, name) => {
    const button = element("button", { type: "button", "aria-label": `${name} ${label}` }, text);
    button.addEventListener("click", () => go(offset));
    return button;
  };
  return element("div", { class: "picker" }, element("label", {}, label, select), step("‹", -1, "previous"), step("›", 1, "next"));
}

function checkbox(label, checked, changed) {
  const input = element("input", { type: "checkbox", checked });
  input.addEventListener("change", () => changed(input.checked));
  return element("label", { class: "check" }, input, label);
}

/** A video with its controls below the picture, where they cover nothing: a button, a slider over the steps, the step. */
function player(source, steps) {
  const video = element("video", { loop: true, muted: true, playsinline: true, preload: "auto", src: source });
  const button = element("button", { type: "button", "aria-label": "play" }, "▶");
  const slider = element("input", { type: "range", min: 0, max: steps, step: 1, value: 0, "aria-label": "step of the motion" });
  const told = element("output", {}, `step 0 of ${steps}`);
  const frame = () => Math.min(steps, Math.floor((video.currentTime / video.duration) * (steps + 1) + 1e-6) || 0);
  const show = () => {
    slider.value = frame();
    told.textContent = `step ${frame()} of ${steps}`;
    if (!video.paused) requestAnimationFrame(show);
  };
  const say = () => {
    button.textContent = video.paused ? "▶" : "❚❚";
    button.setAttribute("aria-label", video.paused ? "play" : "pause");
    show();
  };
  const toggle = () => (video.paused ? video.play() : video.pause());
  for (const event of ["play", "pause", "seeked"]) video.addEventListener(event, say);
  for (const part of [button, video]) part.addEventListener("click", toggle);
  slider.addEventListener("input", () => {
    video.pause();
    video.currentTime = ((Number(slider.value) + 0.5) / (steps + 1)) * video.duration; // the middle of the frame
  });
  return element("div", { class: "player" }, video, element("div", { class: "player-controls" }, button, slider, told));
}

/** Rows of cells; a cell is text or an element, a heading's `number` aligns its column to the right. */
function table(headings, rows) {
  const cell = (tag, content, heading) => element(tag, { class: heading.number ? "number" : null, scope: tag === "th" ? "col" : null }, content ?? "–");
  const head = element("tr", {}, ...headings.map((heading) => cell("th", heading.text, heading)));
  const body = rows.map((row) => element("tr", {}, ...row.map((content, i) => cell("td", content, headings[i]))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

/** A number for people: three significant digits. */
function short(value, digits = 3) {
  if (value == null) return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-3) return value.toExponential(digits - 1).replace("e+", "e");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(digits)).toString();
}

/** 1st, 2nd, 3rd, 4th, … */
function ordinal(count) {
  const teen = count % 100 > 10 && count % 100 < 14;
  return `${count}${(!teen && { 1: "st", 2: "nd", 3: "rd" }[count % 10]) || "th"}`;
}

function plain(value) {
  if (value == null) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : short(value, 4);
  if (Array.isArray(value)) return value.length ? value.map(plain).join(", ") : "none";
  return typeof value === "object" ? "–" : String(value);
}
