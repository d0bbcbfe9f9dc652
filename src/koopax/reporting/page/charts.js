// Charts: the look they share, and one function per chart from numbers to a plotly figure.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star"];
const BASELINES = { constant: "no change", mean: "training mean", dmdc: "linear regression (DMDc)" };
const drawn = [];
const waiting = [];

/** What tells the number-th model apart: a colour, a dash and a marker, so that none has to be told by colour alone. */
function style(number) {
  return {
    colour: report.colours[number % report.colours.length],
    dash: DASHES[number % DASHES.length],
    symbol: SYMBOLS[number % SYMBOLS.length],
  };
}

function theme() {
  const values = getComputedStyle(document.documentElement);
  const colours = ["ink", "muted", "grid", "line", "panel", "sans"].map((name) => [name, values.getPropertyValue(`--${name}`).trim()]);
  return { ...Object.fromEntries(colours), narrow: matchMedia("(max-width: 34rem)").matches };
}

/** Draw a figure into a place when its turn comes, and again whenever the theme changes or what is returned is called. */
function chart(place, label, figure) {
  place.setAttribute("role", "figure");
  place.setAttribute("aria-label", label);
  const coarse = matchMedia("(pointer: coarse), (max-width: 34rem)").matches;
  const bar = !coarse && place.clientWidth > 560 && !place.classList.contains("short"); // or it covers the legend
  const redraw = () => {
    const look = theme();
    const { data, layout } = escaped(figure(look));
    return Plotly.react(place, data, arranged(layout, look, coarse), {
      responsive: true,
      displayModeBar: bar ? "hover" : false,
      displaylogo: false,
      modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
      toImageButtonOptions: { filename: label.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-"), scale: 2 },
    });
  };
  drawn.push(redraw);
  waiting.push(redraw);
  return redraw;
}

/** Text that plotly shows as it is: plotly takes <a href=…>, <b> and the like in any text for markup. */
function literal(text) {
  return typeof text !== "string" ? text : text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A figure whose names, categories and titles, which may come from data, are literal; templates hold numbers only. */
function escaped({ data, layout }) {
  const values = (list) => (list?.some((value) => typeof value === "string") ? list.map(literal) : list);
  const axis = (own) => (own ? { ...own, title: literal(own.title) } : own);
  return {
    data: data.map((trace) => ({ ...trace, name: literal(trace.name), x: values(trace.x), y: values(trace.y) })),
    layout: { ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) },
  };
}

/** Draw what waits, from the top down, and let the page answer in between. */
function drawWaiting(done) {
  const next = waiting.shift();
  if (!next) return done();
  next();
  setTimeout(() => drawWaiting(done));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((redraw) => redraw()));

/** A layout with the shared look; `xaxis` and `yaxis` keep what they say themselves. */
function arranged(layout, look, coarse) {
  const axis = {
    gridcolor: look.grid, linecolor: look.line, zerolinecolor: look.line, tickcolor: look.line,
    automargin: true, title: { standoff: 10, font: { size: 13 } },
  };
  const titled = (own) => ({ ...axis, ...own, title: { ...axis.title, text: own?.title ?? "" } });
  return {
    ...layout,
    xaxis: titled(layout.xaxis),
    yaxis: titled(layout.yaxis),
    font: { family: look.sans, size: 13, color: look.ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 10, t: 10, b: 8, ...layout.margin },
    dragmode: coarse ? false : "zoom", // a finger that scrolls past should not zoom
    hoverlabel: { bgcolor: look.panel, bordercolor: look.line, font: { color: look.ink, family: look.sans }, namelength: -1 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", ...layout.legend },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: look.muted, activecolor: look.ink, orientation: "h" },
  };
}

/** A logarithmic axis with as many ticks as can be read. */
function logarithmic(values, title) {
  const sizes = values.flat().filter((value) => value > 0).map(Math.log10);
  const span = Math.max(...sizes) - Math.min(...sizes);
  const ticks = span > 6 ? Math.ceil(span / 6) : span > 2 ? 1 : span > 0.6 ? "D2" : "D1";
  return { title, type: "log", dtick: ticks, tickformat: "~g", minor: span > 2 ? { dtick: "D1", showgrid: false } : undefined };
}

const steps = (count, first = 1) => Array.from({ length: count }, (_, i) => i + first);

/** A line with few markers on it, so that lines are told apart by dash and marker too. */
function line(x, y, name, number, more = {}) {
  const { colour, dash, symbol } = style(number);
  return {
    type: "scatter", mode: "lines+markers", x, y, name, legendgroup: name,
    line: { color: colour, dash, width: 2.2 },
    marker: { symbol, size: 8, color: colour, maxdisplayed: 9 },
    hovertemplate: "%{y:.3g}",
    ...more,
  };
}

/** The area between two lines; it belongs to the line of the same name. */
function area(x, low, high, name, number) {
  const known = x.map((_, i) => i).filter((i) => low[i] != null && high[i] != null);
  const backwards = [...known].reverse();
  return {
    type: "scatter", mode: "lines", name, legendgroup: name, showlegend: false, hoverinfo: "skip",
    x: [...known.map((i) => x[i]), ...backwards.map((i) => x[i])],
    y: [...known.map((i) => high[i]), ...backwards.map((i) => low[i])],
    fill: "toself", fillcolor: transparent(style(number).colour, 0.18), line: { width: 0 },
  };
}

function transparent(colour, opacity) {
  const part = (i) => parseInt(colour.slice(i, i + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${opacity})`;
}

function errorFigure(data, chosen, look) {
  const quantity = chosen.quantity + (chosen.units === "raw" ? "_raw" : "");
  const x = steps(data.horizon);
  const traces = [];
  data.models.forEach((model, number) => {
    if (!model.error) return;
    const { mean, low, high } = model.error[quantity];
    traces.push(area(x, low, high, model.label, number), line(x, mean, model.label, number));
  });
  Object.entries(data.baselines).forEach(([name, baseline], number) => {
    traces.push({
      type: "scatter", mode: "lines", x, y: baseline[quantity], name: BASELINES[name] ?? name, hovertemplate: "%{y:.3g}",
      line: { color: look.muted, width: 1.3, dash: ["dashdot", "dot", "dash"][number % 3] },
    });
  });
  const title = `squared ${chosen.quantity} error (${chosen.units === "raw" ? "raw units" : "variance = 1"})`;
  return {
    data: traces,
    layout: {
      hovermode: "x unified",
      xaxis: { title: "steps after the start", range: [0, data.horizon * 1.01] },
      yaxis: chosen.scale === "log" ? logarithmic(traces.map((trace) => trace.y), title) : { title, rangemode: "tozero" },
    },
  };
}

function trajectoryFigure(data, chosen, look) {
  const { names, units, predicted } = data.trajectories;
  const truth = data.trajectories.true[chosen.window][chosen.dimension];
  const x = steps(truth.length, 0);
  const traces = [{
    type: "scatter", mode: "lines", x, y: truth, name: "what happened", hovertemplate: "%{y:.3g}",
    line: { color: look.ink, width: 4 }, opacity: 0.55,
  }];
  for (const [number, values] of Object.entries(predicted)) {
    const of = (bounds) => bounds?.[number]?.[chosen.window][chosen.dimension];
    const [low, high] = [of(data.trajectories.lower), of(data.trajectories.upper)];
    if (low && high) traces.push(area(x, low, high, data.models[number].label, Number(number)));
    traces.push(line(x, values[chosen.window][chosen.dimension], data.models[number].label, Number(number)));
  }
  const unit = units[chosen.dimension] ? ` (${units[chosen.dimension]})` : "";
  return {
    data: traces,
    layout: { hovermode: "x unified", xaxis: { title: "steps after the start" }, yaxis: { title: names[chosen.dimension] + unit } },
  };
}

function dimensionFigure(data, look) {
  const names = data.trajectories.names.slice(0, data.trajectories.states);
  const tested = data.models.map((model, number) => ({ model, number })).filter(({ model }) => model.per_dimension);
  const order = names.map((_, i) => i).sort((a, b) => (tested[0].model.per_dimension.mean[a] ?? Infinity) - (tested[0].model.per_dimension.mean[b] ?? Infinity)).reverse().slice(-40);
  return {
    data: tested.map(({ model, number }) => {
      const { mean, low, high } = model.per_dimension;
      return {
        type: "scatter", mode: "markers", name: model.label, y: order.map((i) => names[i]), x: order.map((i) => mean[i]),
        marker: { size: 10, symbol: style(number).symbol, color: style(number).colour },
        error_x: {
          type: "data", symmetric: false, thickness: 1.2, width: 0, color: style(number).colour,
          array: order.map((i) => high[i] - mean[i]), arrayminus: order.map((i) => mean[i] - low[i]),
        },
        hovertemplate: "%{y}: %{x:.3g}",
      };
    }),
    layout: {
      xaxis: { ...logarithmic(tested.map(({ model }) => model.per_dimension.mean), "squared error (variance = 1)"), ...(look.narrow && { dtick: 1 }) },
      yaxis: { type: "category" },
    },
  };
}

function trainingFigure(data, chosen) {
  const traces = [];
  data.models.forEach((model, number) => {
    model.training.filter((run) => run.curves[chosen.quantity]).forEach((run, i) => {
      const curve = run.curves[chosen.quantity];
      traces.push(line(curve[chosen.against], curve.value, model.label, number, {
        showlegend: i === 0, opacity: i === 0 ? 1 : 0.6,
        hovertemplate: `%{y:.3g} (seed ${run.seed})`,
      }));
    });
  });
  return {
    data: traces,
    layout: {
      xaxis: { title: chosen.against === "step" ? "gradient steps" : "seconds of training", rangemode: "tozero" },
      yaxis: logarithmic(traces.map((trace) => trace.y), "squared error (variance = 1)"),
    },
  };
}

function sizes(importance, count) {
  if (!importance) return Array(count).fill(7);
  const most = Math.max(...importance);
  return importance.map((share) => 4 + 16 * Math.sqrt(share / most));
}

function modeTexts(spectrum) {
  const steps = (value) => (value == null ? "never" : `${short(value)} steps`);
  return spectrum.half_life.map((life, i) =>
    `half-life ${steps(life)}<br>period ${steps(spectrum.period[i])}` +
    (spectrum.importance ? `<br>${short(100 * spectrum.importance[i], 2)} % of the motion` : ""));
}

/** Traces of the modes before and after training in a plane of two quantities. */
function modeTraces(spectrum, number, before, after, look) {
  const { colour } = style(number);
  const lines = { x: [], y: [] };
  after.x.forEach((_, i) => {
    lines.x.push(before.x[i], after.x[i], null);
    lines.y.push(before.y[i], after.y[i], null);
  });
  const size = sizes(spectrum.importance, after.x.length);
  const texts = modeTexts(spectrum);
  const marked = (name, symbol, chosen) => {
    const of = (values) => values.filter((_, i) => chosen[i]);
    return {
      type: "scatter", mode: "markers", name, x: of(after.x), y: of(after.y), text: of(texts), hovertemplate: "%{text}<extra></extra>",
      marker: { symbol, size: of(size), color: colour, opacity: 0.75, line: { width: 0.6, color: look.panel } },
    };
  };
  const traces = [
    { type: "scatter", mode: "lines", ...lines, line: { color: look.muted, width: 0.7 }, opacity: 0.5, hoverinfo: "skip", showlegend: false },
    { type: "scatter", mode: "markers", name: "before training", x: before.x, y: before.y, hoverinfo: "skip",
      marker: { symbol: "circle-open", size: 5, color: look.muted, line: { width: 1 } } },
    marked("after training", "circle", spectrum.aliased.map((aliased) => !aliased)),
  ];
  if (spectrum.aliased.some(Boolean)) traces.push(marked("aliased after training", "x", spectrum.aliased));
  return traces;
}

function discFigure(spectrum, number, look) {
  const angles = Array.from({ length: 181 }, (_, i) => (2 * Math.PI * i) / 180);
  const circle = {
    type: "scatter", mode: "lines", x: angles.map(Math.cos), y: angles.map(Math.sin), hoverinfo: "skip", showlegend: false,
    line: { color: look.muted, width: 1.2 },
  };
  const points = (part) => ({ x: part.real, y: part.imag });
  const axis = { range: [-1.08, 1.08], dtick: 0.5, zeroline: true };
  return {
    data: [circle, ...modeTraces(spectrum, number, points(spectrum.before), points(spectrum.after), look)],
    layout: {
      hovermode: "closest",
      xaxis: { ...axis, title: "real part", constrain: "domain" },
      yaxis: { ...axis, title: "imaginary part", scaleanchor: "x", constrain: "domain" },
    },
  };
}

function scalesFigure(spectrum, number, look) {
  return {
    data: modeTraces(spectrum, number, { x: spectrum.period_before, y: spectrum.half_life_before }, { x: spectrum.period, y: spectrum.half_life }, look),
    layout: {
      hovermode: "closest",
      xaxis: logarithmic([spectrum.period], "period (steps)"),
      yaxis: logarithmic([spectrum.half_life], "half-life (steps)"),
    },
  };
}

function gradientFigure(data, part, title) {
  const traces = [];
  data.models.forEach((model, number) => {
    if (model.gradient) traces.push(line(steps(model.gradient[part].length, part === "start" ? 1 : 0), model.gradient[part], model.label, number));
  });
  return {
    data: traces,
    layout: {
      hovermode: "x unified",
      xaxis: { title: part === "start" ? "step k of the loss" : "step of the action" },
      yaxis: logarithmic(traces.map((trace) => trace.y), title),
    },
  };
}

function returnHistogram(returns, look) {
  return {
    data: [{ type: "histogram", x: returns, nbinsx: 30, marker: { color: look.muted, line: { color: look.panel, width: 1 } }, hovertemplate: "%{y} episodes<extra></extra>" }],
    layout: { showlegend: false, bargap: 0.04, xaxis: { title: "return of an episode" }, yaxis: { title: "episodes" } },
  };
}

function returnFigure(task, chosen) {
  const traces = [];
  task.groups.forEach((group, number) => {
    if (chosen.shown === "mean") {
      traces.push(area(group.steps, group.returns.low, group.returns.high, group.label, number), line(group.steps, group.returns.mean, group.label, number));
    } else {
      group.runs.forEach((run, i) => traces.push(line(run.steps, run.returns, group.label, number, { showlegend: i === 0, hovertemplate: `%{y:.4g} (seed ${run.seed})` })));
    }
  });
  return {
    data: traces,
    layout: { hovermode: chosen.shown === "mean" ? "x unified" : "closest", xaxis: { title: "environment steps", rangemode: "tozero" }, yaxis: { title: "return" } },
  };
}

/** Of every run that plans: `x` and `y` of a trace, in the style of its group. */
function planTraces(task, xs, ys) {
  return task.groups.flatMap((group, number) => group.planning.map((run, i) =>
    line(xs(run), ys(run), group.label, number, { showlegend: i === 0, hovertemplate: `%{y:.3g} (seed ${run.seed})` })));
}

function planFigure(task) {
  return {
    data: planTraces(task, (run) => run.steps, (run) => run.lengths),
    layout: { hovermode: "closest", xaxis: { title: "environment steps", rangemode: "tozero" }, yaxis: { title: "decisions of a plan", rangemode: "tozero" } },
  };
}

function modelErrorFigure(task) {
  return {
    data: planTraces(task, (run) => steps(run.errors.length), (run) => run.errors),
    layout: { hovermode: "closest", xaxis: { title: "decisions ahead" }, yaxis: { title: "relative error", rangemode: "tozero" } },
  };
}

function aggregateFigure(aggregates, statistic, title) {
  const { agents } = aggregates;
  return {
    data: agents.map((agent, number) => {
      const { value, low, high } = agent[statistic];
      const { colour, symbol } = style(number);
      return {
        type: "scatter", mode: "markers", x: [value], y: [agent.agent], name: agent.agent, showlegend: false,
        marker: { size: 12, symbol, color: colour },
        error_x: { type: "data", symmetric: false, array: [high - value], arrayminus: [value - low], color: colour, thickness: 2, width: 5 },
        hovertemplate: `${short(value)} [${short(low)}, ${short(high)}]`,
      };
    }),
    layout: { xaxis: { title, nticks: 4, tickangle: 0 }, yaxis: { type: "category", range: [agents.length - 0.5, -0.5] } },
  };
}

function profileFigure(aggregates) {
  const x = aggregates.thresholds;
  return {
    data: aggregates.agents.flatMap((agent, number) => [
      area(x, agent.profile.low, agent.profile.high, agent.agent, number),
      line(x, agent.profile.value, agent.agent, number),
    ]),
    layout: { hovermode: "x unified", xaxis: { title: "score τ" }, yaxis: { title: "share of runs above τ", range: [-0.02, 1.04] } },
  };
}
