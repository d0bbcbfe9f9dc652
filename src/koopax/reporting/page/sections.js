// The page: fills the templates with what the report holds.

/** A short sample of a model's line: dash and marker, as in the charts. */
function swatch(number) {
  const { colour, dash, symbol } = style(number);
  const patterns = { solid: "", dash: "6 3", dot: "2 3", dashdot: "6 3 2 3", longdash: "9 3", longdashdot: "9 3 2 3" };
  const shapes = {
    circle: "M11 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0", square: "M11.5 2.5h7v7h-7z", diamond: "M15 1.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
    "triangle-up": "M15 1.5l4.5 8h-9z", x: "M12 3l6 6M18 3l-6 6", star: "M15 1l1.5 3.6 3.9.3-3 2.6.9 3.8-3.3-2-3.3 2 .9-3.8-3-2.6 3.9-.3z",
  };
  const namespace = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(namespace, "svg");
  const path = (attributes) => {
    const made = document.createElementNS(namespace, "path");
    Object.entries({ stroke: colour, "stroke-width": 2, fill: "none", ...attributes }).forEach(([name, value]) => made.setAttribute(name, value));
    picture.append(made);
  };
  picture.setAttribute("viewBox", "0 0 30 12");
  picture.setAttribute("class", "swatch");
  picture.setAttribute("aria-hidden", "true");
  path({ d: "M0 6H30", "stroke-dasharray": patterns[dash] });
  path({ d: shapes[symbol], fill: symbol === "x" ? "none" : colour });
  return picture;
}

function named(label, number) {
  return element("span", {}, swatch(number), label);
}

function withInterval({ mean, low, high }) {
  return element("span", {}, short(mean[0]), element("span", { class: "interval" }, ` [${short(low[0])}, ${short(high[0])}]`));
}

function scoreTable(data) {
  const tested = data.models.map((model, number) => ({ model, number }));
  const best = (quantity) => Math.min(...tested.map(({ model }) => model.overall?.[quantity].mean[0] ?? Infinity));
  const score = (model, quantity) => {
    if (!model.overall) return element("span", { class: "untested" }, model.untested ?? "not tested");
    const cell = withInterval(model.overall[quantity]);
    if (model.overall[quantity].mean[0] === best(quantity)) cell.style.fontWeight = 700;
    return cell;
  };
  const number = (text) => ({ text, number: true });
  const headings = [
    { text: "model" }, { text: "state error" }, ...(data.rewards ? [{ text: "reward error" }] : []), number("seeds"),
    number("parameters"), number("training steps"), number("seconds"),
  ];
  const rows = tested.map(({ model, number }) => [
    named(model.label, number), score(model, "state"), ...(data.rewards ? [model.overall ? score(model, "reward") : "–"] : []),
    String(model.tested ?? 0), model.parameters == null ? "–" : model.parameters.toLocaleString("en"),
    model.steps.toLocaleString("en"), short(model.seconds),
  ]);
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Scores" }, table(headings, rows));
}

function errorPart({ slot }, data) {
  const chosen = { quantity: "state", units: "normalised", scale: "log" };
  const redraw = chart(slot("error"), "Error against the horizon", (look) => errorFigure(data, chosen, look));
  const set = (name) => (value) => { chosen[name] = value; redraw(); };
  slot("error-controls").append(
    ...(data.rewards ? [choice("quantity", [["state", "state"], ["reward", "reward"]], "state", set("quantity"))] : []),
    choice("units", [["normalised", "variance = 1"], ["raw", "raw units"]], "normalised", set("units")),
    choice("scale", [["log", "logarithmic"], ["linear", "linear"]], "log", set("scale")),
  );
  const over = [...new Set(data.models.map((model) => model.interval_over).filter(Boolean))];
  slot("bands").textContent = `The shaded bands are 95 % bootstrapped intervals over ${over.join(" or ")}` +
    (over.includes("test episodes") && over.length > 1 ? " (the latter where a model was trained with one seed)." : ".");
}

/** How each model fares in a window, and how that compares with the other windows. */
function windowNote(data, { errors }) {
  const parts = Object.entries(errors).map(([number, { error, rank }]) =>
    `${data.models[number].label} ${error == null ? "diverges" : short(error)}` +
    (rank === 1 ? " (its largest error of all)" : ` (its ${ordinal(rank)} largest)`));
  const banded = Object.keys(data.trajectories.lower ?? {}).length > 0;
  return `Mean state error in this window, in units of variance, and its rank among all ${data.windows} windows: ${parts.join("; ")}.` +
    (banded ? ` Shaded: where a model expects what happens with a chance of ${100 * data.trajectories.level} %, as calibrated on validation episodes.` : "");
}

function trajectoryPart({ slot }, data) {
  const { names, windows, states } = data.trajectories;
  const chosen = { window: 0, dimension: 0 };
  const redraw = chart(slot("trajectory"), "True and predicted trajectories", (look) => trajectoryFigure(data, chosen, look));
  const tell = () => { slot("trajectory-note").textContent = windowNote(data, windows[chosen.window]); };
  slot("trajectory-controls").append(
    picker("component", names, (value) => { chosen.dimension = value; redraw(); }),
    picker("window", windows.map(({ text }) => text), (value) => { chosen.window = value; redraw(); tell(); }),
  );
  tell();
  const place = slot("dimensions");
  place.style.height = `${Math.min(states, 40) * 1.45 + 6}rem`;
  chart(place, "Error by component", (look) => dimensionFigure(data, look));
}

function videoPart({ slot }, data) {
  const { videos = [] } = data;
  if (videos.length) {
    const show = (number) => slot("video").replaceChildren(player(`data:video/mp4;base64,${videos[number].mp4}`, data.horizon));
    if (videos.length > 1) slot("video-controls").append(picker("window", videos.map(({ text }) => text), show));
    show(0);
    if (data.of_frames) {
      slot("video-text").textContent = "A test window: the frames that were seen, beside those that each model predicted from the first ones and the actions.";
    }
    slot("video-note").textContent = data.video_note ?? "";
  } else {
    slot("video-text").textContent = data.video_note;
  }
}

function trainingPart({ slot }, data) {
  const texts = { validation_state: "states, validation", validation_reward: "rewards, validation", state: "states, training", reward: "rewards, training" };
  const possible = Object.keys(texts).filter((name) => data.rewards || !name.includes("reward"));
  const known = possible.filter((name) => data.models.some((model) => model.training.some((run) => run.curves[name])));
  const chosen = { quantity: known[0], against: "step" };
  const redraw = chart(slot("training"), "Training curves", () => trainingFigure(data, chosen));
  slot("training-controls").append(
    choice("against", [["step", "steps"], ["seconds", "seconds"]], "step", (value) => { chosen.against = value; redraw(); }),
    picker("error of", known.map((name) => texts[name]), (value) => { chosen.quantity = known[value]; redraw(); }),
  );
}

/** The modes that matter most, a row each. */
function modesTable(modes) {
  const number = (text) => ({ text, number: true });
  const known = modes.some(({ share }) => share != null);
  const percent = (share) => `${short(100 * share, 2)} %`;
  const headings = [
    ...(known ? [number("share of the motion"), number("with those above")] : []),
    number("period (steps)"), number("half-life (steps)"), { text: "what it does" },
  ];
  const rows = modes.map(({ share, cumulative, period, half_life, words }) => [
    ...(known ? [percent(share), percent(cumulative)] : []),
    period == null ? "none" : short(period), half_life == null ? "none" : short(half_life), words,
  ]);
  return table(headings, rows);
}

function spectrumPart({ slot }, data) {
  const numbers = data.models.map((_, number) => number).filter((number) => data.models[number].spectrum);
  let number = numbers[0];
  const spectrum = () => data.models[number].spectrum;
  const tell = () => {
    const { aliased, half_life, period, importance, margin } = spectrum();
    slot("importance-text").textContent = importance ? "; the larger a mode, the more of the motion it carries" : "";
    const never = half_life.filter((value, i) => value == null || period[i] == null).length;
    const notes = [`${half_life.length} modes, the slowest ${margin > 0 ? `with |λ̄| = ${short(1 - margin, 5)}` : "without decay"}.`];
    if (!spectrum().after.imag.some((value) => value < 0)) notes.push("Their conjugates, in the lower half, are not drawn.");
    if (never) notes.push(`${never} never decay or never turn and are missing on the right.`);
    const count = aliased.filter(Boolean).length;
    if (count) notes.push(`${count} alias: they turn by more than half a circle per step.`);
    slot("spectrum-note").textContent = notes.join(" ");
    slot("modes-text").textContent = spectrum().sentence;
    slot("modes").replaceChildren(modesTable(spectrum().modes));
  };
  const redraws = [
    chart(slot("disc"), "Eigenvalues in the complex plane", (look) => discFigure(spectrum(), number, look)),
    chart(slot("scales"), "Half-lives and periods", (look) => scalesFigure(spectrum(), number, look)),
  ];
  if (numbers.length > 1) {
    slot("spectrum-controls").append(picker("model", numbers.map((i) => data.models[i].label), (value) => {
      number = numbers[value];
      redraws.forEach((redraw) => redraw());
      tell();
    }));
  }
  tell();
}

function gradientPart({ slot }, data) {
  chart(slot("gradient-start"), "Gradient that arrives at the start", () => gradientFigure(data, "start", "‖∂L/∂x₀‖ / ‖∂L/∂xₖ‖"));
  chart(slot("gradient-actions"), "Gradient that arrives at actions", () => gradientFigure(data, "actions", "‖∂L/∂a‖ / ‖∂L/∂x‖"));
}

function summaryPart({ slot }, data) {
  const { summary } = data;
  const facts = {
    environment: summary.environment ?? "not recorded",
    "episodes to train on": summary.episodes, "to validate on": summary.validation_episodes, "to test on": summary.test_episodes,
    "steps to train on": summary.steps.toLocaleString("en"), "state, action": `${summary.state_size}, ${summary.action_size}`,
    "episode length": summary.lengths.min === summary.lengths.max ? short(summary.lengths.min) : `${short(summary.lengths.min)} to ${short(summary.lengths.max)}`,
    ...(data.rewards && { "mean return": short(summary.returns.mean, 4) }),
  };
  slot("facts").append(...Object.entries(facts).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
  if (data.changed) slot("summary-text").textContent = "The data as it is now: it has changed since the models were trained.";
  if (data.rewards) chart(slot("returns"), "Returns of episodes", (look) => returnHistogram(summary.all_returns, look));
  else slot("returns").remove();
  slot("returns-text").textContent = data.rewards ? "The chart counts them by their return, the sum of rewards: a wide spread means varied behaviour." : "They hold no rewards.";
  const number = (text) => ({ text, number: true });
  const headings = [{ text: "component" }, { text: "unit" }, number("min"), number("mean"), number("max"), number("deviation")];
  const rows = [...summary.state, ...summary.action, ...(data.rewards ? [summary.reward] : [])].map((column) =>
    [column.name + (column.constant ? " (constant)" : ""), column.unit, ...["min", "mean", "max", "std"].map((name) => short(column[name]))]);
  slot("columns").append(table(headings, rows));
}

function dataSection(data, index) {
  const made = instance("data-template");
  made.root.id = `data-${index}`;
  made.slot("name").textContent = data.name;
  document.getElementById("data-sections").append(made.root); // charts need a place of known width
  made.slot("scores").append(scoreTable(data));
  const tested = data.models.some((model) => model.error);
  if (tested) {
    made.slot("scores-text").textContent = `Mean squared error over ${data.windows} test windows of ${data.horizon} steps, in units of ` +
      "the training data's variance; lower is better, the best is bold, and brackets hold 95 % intervals.";
  }
  const parts = [
    ["error", tested, errorPart],
    ["trajectories", tested, trajectoryPart],
    ["video", tested, videoPart],
    ["training", data.models.some((model) => model.training.some((run) => Object.keys(run.curves).length)), trainingPart],
    ["spectrum", data.models.some((model) => model.spectrum), spectrumPart],
    ["gradient", data.models.some((model) => model.gradient), gradientPart],
    ["summary", Boolean(data.summary), summaryPart],
  ];
  for (const [name, present, fill] of parts) {
    if (present) fill(made, data);
    else made.part(name).remove();
  }
  if (!tested) made.part("dimensions").remove();
}

function agentSection(task, index) {
  const made = instance("agent-template");
  made.root.id = `agent-${index}`;
  made.slot("name").textContent = task.task;
  document.getElementById("agent-sections").append(made.root);
  const headings = [{ text: "agent" }, { text: "final return" }, { text: "seeds", number: true }];
  const rows = task.groups.map((group, number) => [
    named(group.label, number), group.seeds.length > 1 ? withInterval(group.final) : short(group.final.mean[0]), String(group.seeds.length),
  ]);
  made.slot("scores").append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Scores" }, table(headings, rows)));
  const chosen = { shown: "mean" };
  const redraw = chart(made.slot("returns"), `Return on ${task.task}`, () => returnFigure(task, chosen));
  made.slot("return-controls").append(choice("shown", [["mean", "mean and interval"], ["seeds", "every seed"]], "mean", (value) => { chosen.shown = value; redraw(); }));
  if (task.groups.some((group) => group.planning.length)) {
    chart(made.slot("plans"), `Plans on ${task.task}`, () => planFigure(task));
    chart(made.slot("model-errors"), `Model error on ${task.task}`, () => modelErrorFigure(task));
  } else made.part("planning").remove();
  const videos = task.groups.flatMap((group) => group.videos.map((video) => ({ ...video, text: `${group.label}, seed ${video.seed}` })));
  if (videos.length) {
    const show = (number) => {
      const { mp4, rate } = videos[number];
      const film = element("video", { src: `data:video/mp4;base64,${mp4}`, preload: "auto" });
      const steps = () => Math.round(film.duration * rate) - 1; // known once the film is read
      film.addEventListener("loadedmetadata", () => made.slot("video").replaceChildren(player(film.src, steps())));
    };
    if (videos.length > 1) made.slot("video-controls").append(picker("run", videos.map(({ text }) => text), show));
    show(0);
  } else made.part("video").remove();
}

function aggregateSection(aggregates) {
  const made = instance("aggregate-template");
  document.getElementById("agent-sections").append(made.root);
  const tasks = aggregates.tasks.map((task) => `${task.task} at ${short(task.steps)} steps, where a return of ${short(task.score_of_one)} scores 1`);
  made.slot("text").textContent = [`Scores are returns as shares of a task's best: ${tasks.join("; ")}.`, ...aggregates.notes].join(" ");
  const cell = ({ value, low, high }) => withInterval({ mean: [value], low: [low], high: [high] });
  const headings = [{ text: "agent" }, { text: "mean" }, { text: "interquartile mean" }, { text: "optimality gap" }, { text: "runs", number: true }];
  const rows = aggregates.agents.map((agent, number) =>
    [named(agent.agent, number), cell(agent.mean), cell(agent.iqm), cell(agent.optimality_gap), String(agent.runs)]);
  made.slot("scores").append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Aggregates" }, table(headings, rows)));
  const titles = { mean: "mean", iqm: "interquartile mean", optimality_gap: "optimality gap" };
  for (const [name, title] of Object.entries(titles)) chart(made.slot(name), title, () => aggregateFigure(aggregates, name, title));
  chart(made.slot("profiles"), "Performance profiles", () => profileFigure(aggregates));
}

/** Settings of runs of one kind, a row per setting. */
function settingsTable(runs, onlyDiffering) {
  const names = [...new Set(runs.flatMap((run) => [...Object.keys(run.settings), ...Object.keys(run.provenance)]))];
  const groupOf = (name) => (name.includes(".") ? name.split(".")[0] : "run");
  const body = [];
  for (const group of new Set(["run", ...names.map(groupOf)])) {
    const rows = names.filter((name) => groupOf(name) === group).map((name) => {
      const values = runs.map((run) => plain(run.settings[name] ?? run.provenance[name]));
      return { name: name.split(".").at(-1).replaceAll("_", " "), values, differs: new Set(values).size > 1 };
    }).filter(({ differs }) => differs || !onlyDiffering);
    if (rows.length) body.push(element("tr", { class: "heading" }, element("th", { scope: "rowgroup" }, group), element("td", { colspan: runs.length })));
    body.push(...rows.map(({ name, values, differs }) =>
      element("tr", { class: differs ? "differs" : null }, element("th", { scope: "row" }, name), ...values.map((text) => element("td", {}, text)))));
  }
  const head = element("tr", {}, element("th", {}, "folder"), ...runs.map((run) => element("th", { scope: "col" }, element("code", {}, run.folder))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

function settingsSection() {
  const kinds = [...new Set(report.runs.map((run) => run.kind))].map((kind) => report.runs.filter((run) => run.kind === kind));
  const place = document.querySelector('[data-slot="settings"]');
  const show = (onlyDiffering) => place.replaceChildren(...kinds.map((runs) =>
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Settings of ${runs[0].kind}s` }, settingsTable(runs, onlyDiffering && runs.length > 1))));
  const several = kinds.some((runs) => runs.length > 1);
  if (several) document.querySelector('[data-slot="settings-controls"]').append(checkbox("only what differs", true, show));
  show(several);
}

function problemSection() {
  if (!report.problems.length) return;
  const box = document.getElementById("problems");
  const items = report.problems.map(({ run, message }) => element("li", {}, element("code", {}, run), ` ${message}`));
  box.append(element("h2", {}, "Not everything could be shown"), element("ul", {}, ...items));
  box.hidden = false;
}

function contents() {
  const links = [...document.querySelectorAll("main .system")].map((section) => ["#" + section.id, section.querySelector("h2").textContent]);
  document.getElementById("contents").append(element("ul", {}, ...links.map(([href, text]) => element("li", {}, element("a", { href }, text)))));
}

problemSection();
report.data.forEach(dataSection);
report.agents.forEach(agentSection);
if (report.aggregates) aggregateSection(report.aggregates);
settingsSection();
contents();
drawWaiting(() => { document.documentElement.dataset.ready = "true"; });
