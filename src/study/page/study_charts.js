// The charts of a study as SVG, and the texts of its trials.

import {Axis, ChoiceAxis, labelled} from '../../report/page/axis.js';
import {make, note, path, pathOf, xy} from '../../report/page/dom.js';
import {cut, cutName, numberText} from '../../report/page/text.js';

const frame = {width: 720, height: 400, left: 92, right: 18, top: 18, bottom: 64};
const frameX = place => frame.left + place * (frame.width - frame.left - frame.right);
const frameY = place => frame.height - frame.bottom - place * (frame.height - frame.top - frame.bottom);

const isMinimized = objective => objective.direction === 'minimize';
const directionText = objective => (isMinimized(objective) ? 'less is better' : 'more is better');
const logNote = axis => (axis.log ? ', log' : '');

export function objectiveTitle(study, k) {
  return study.objectives.length === 1 ? 'value' : `value ${k + 1}`;
}
// "trial 12, pruned: 0.25"
export function trialTitle(trial) {
  const values = trial.values.filter(value => value !== null).map(value => numberText(value, 6));
  return `trial ${trial.number}, ${trial.state}` + (values.length ? ': ' + values.join(', ') : '');
}

function shapeOf(kind) {
  if (kind.endsWith('beyond')) return 'm0-7 6 7-6 7-6-7z';
  if (kind === 'best') return 'm0-9 2.6 5.6 6.1.7-4.6 4.2 1.3 6-5.4-3-5.4 3 1.3-6-4.6-4.2 6.1-.7z';
  if (kind === 'pruned') return 'm-5-4h10l-5 9z';
  if (kind === 'failed') return 'm-5-5 10 10m0-10-10 10';
  return 'm-4.5 0a4.5 4.5 0 1 0 9 0 4.5 4.5 0 1 0-9 0';
}
const pathOfTrial = (trial, kind, d, style = {}) =>
  path(kind, d, {style, 'data-t': trial.number}, trialTitle(trial));
const marker = (trial, kind, x, y) => pathOfTrial(trial, 'm ' + kind, `M${xy(x, y)}${shapeOf(kind)}`);

// A chart with the grid and the titles of its axes.
function plot(label, across, acrossTitle, up, upTitle) {
  const {width, height, left, right, top, bottom} = frame;
  const parts = [];
  for (const [value, text] of labelled(across.ticks(6))) {
    const x = frameX(across.place(value)).toFixed(1);
    parts.push(
      path('grid', `M${x} ${top.toFixed(1)}V${(height - bottom).toFixed(1)}`),
      make('text', {x, y: height - bottom + 22, 'text-anchor': 'middle'}, text)
    );
  }
  for (const [value, text] of labelled(up.ticks(5))) {
    const y = frameY(up.place(value)).toFixed(1);
    parts.push(
      path('grid', `M${left} ${y}H${width - right}`),
      make('text', {x: left - 8, y, dy: '.35em', 'text-anchor': 'end'}, text)
    );
  }
  const turned = `translate(16 ${frameY(0.5)}) rotate(-90)`;
  return make(
    'svg',
    {class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'group', tabindex: 0, 'aria-label': label},
    ...parts,
    make('text', {class: 'axis', x: frameX(0.5), y: height - 10, 'text-anchor': 'middle'}, acrossTitle),
    make('text', {class: 'axis', transform: turned, 'text-anchor': 'middle'}, upTitle)
  );
}

// Explains the markers of the kinds that a chart has.
function legend(kinds, ...more) {
  const known = {
    best: 'best',
    complete: 'complete',
    pruned: 'pruned, the last report',
    running: 'running',
    failed: 'failed'
  };
  const entries = Object.entries(known).filter(([kind]) => kinds.has(kind));
  return make(
    'p',
    {class: 'legend'},
    ...more,
    ...entries.map(([kind, text]) =>
      make(
        'span',
        make(
          'svg',
          {viewBox: '-10 -10 20 20', 'aria-hidden': 'true'},
          path('m ' + kind, 'M0 0' + shapeOf(kind))
        ),
        text
      )
    )
  );
}
function beyondNote(count) {
  if (!count) return null;
  const text = count === 1 ? '1 value is beyond the axis' : `${count} values are beyond the axis`;
  return note(text + ': drawn as a diamond at an end.');
}

function axisOfObjective(study, k) {
  const finite = trials => trials.map(trial => trial.values[k]).filter(Number.isFinite);
  const complete = finite(study.trials.filter(trial => trial.state === 'complete'));
  return Axis.ofValues(complete.length ? complete : finite(study.trials), isMinimized(study.objectives[k]));
}

// The markers of trials, the best above the rest, and the kinds that occur.
class Markers {
  constructor() {
    this.below = [];
    this.above = [];
    this.kinds = new Set();
    this.beyond = 0;
  }
  add(trial, kind, x, y, isBeyond = false) {
    this.kinds.add(kind);
    if (isBeyond) ++this.beyond;
    (trial.best ? this.above : this.below).push(marker(trial, kind + (isBeyond ? ' beyond' : ''), x, y));
  }
}

// The value of each trial, and the best so far.
export function historyChart(study, k) {
  const objective = study.objectives[k];
  const up = axisOfObjective(study, k);
  const across = new Axis(0, Math.max(1, study.trials_in_all - 1), false, true);
  const x = place => frameX(across.place(place));
  const y = value => frameY(up.place(value));
  const title = objectiveTitle(study, k);
  const svg = plot(
    `Optimisation history: ${title} of each trial. Arrow keys go through the trials.`,
    across,
    'trial',
    up,
    `${title} (${directionText(objective)}${logNote(up)})`
  );
  const steps = objective.best_so_far;
  if (steps.length) {
    const points = [];
    steps.forEach(([place, value], i) => {
      if (i > 0) points.push([x(place), y(steps[i - 1][1])]);
      points.push([x(place), y(value)]);
    });
    points.push([frameX(1), y(steps[steps.length - 1][1])]);
    svg.append(path('so-far', pathOf(points), {}, 'best so far'));
  }
  const markers = new Markers();
  for (const trial of study.byPlace) {
    if (trial.state === 'waiting') continue;
    const value = trial.values[k];
    if (value === null || Number.isNaN(value) || trial.state === 'failed')
      markers.add(trial, trial.state, x(trial.place), frameY(0));
    else markers.add(trial, trial.best ? 'best' : trial.state, x(trial.place), y(value), !up.holds(value));
  }
  svg.append(...markers.below, ...markers.above);
  const soFar = steps.length ? make('span', make('i', {class: 'so-far'}), 'best so far') : null;
  return [svg, legend(markers.kinds, soFar), beyondNote(markers.beyond)];
}

// The complete trials of two objectives, and those that no other beats in both.
export function paretoChart(study) {
  const [across, up] = [0, 1].map(k => axisOfObjective(study, k));
  const titles = [across, up].map(
    (axis, k) => `value ${k + 1} (${directionText(study.objectives[k])}${logNote(axis)})`
  );
  const label = 'Pareto front: the two values of each trial. Arrow keys go through the trials.';
  const svg = plot(label, across, titles[0], up, titles[1]);
  const front = [];
  const markers = new Markers();
  for (const trial of study.byPlace) {
    const [first, second] = trial.values;
    if (trial.state !== 'complete' || Number.isNaN(first ?? NaN) || Number.isNaN(second ?? NaN)) continue;
    const x = frameX(across.place(first));
    const y = frameY(up.place(second));
    if (trial.best) front.push([x, y]);
    markers.add(trial, trial.best ? 'best' : 'complete', x, y, !across.holds(first) || !up.holds(second));
  }
  front.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const points = [];
  front.forEach(([x, y], i) => {
    // At the corner, each objective has the worse of the two trials' values.
    if (i > 0) points.push(isMinimized(study.objectives[0]) ? [x, front[i - 1][1]] : [front[i - 1][0], y]);
    points.push([x, y]);
  });
  if (points.length) svg.append(path('so-far', pathOf(points)));
  svg.append(...markers.below, ...markers.above);
  return [svg, legend(markers.kinds), beyondNote(markers.beyond)];
}

// The values that trials reported, by step.
export function curvesChart(study) {
  const drawn = study.trials.filter(trial => trial.reports);
  if (!drawn.length) return [];
  const reports = drawn.flatMap(trial => trial.reports);
  const steps = reports.map(([step]) => step);
  const values = reports.map(([, value]) => value).filter(Number.isFinite);
  const least = steps.reduce((a, b) => Math.min(a, b));
  const most = steps.reduce((a, b) => Math.max(a, b));
  const across = new Axis(least, most, false, true);
  const up = Axis.ofValues(values, isMinimized(study.objectives[0]));
  const svg = plot(
    'Curves: the values that trials reported, by step. Arrow keys go through the trials.',
    across,
    'step',
    up,
    'reported value' + logNote(up)
  );
  const kinds = new Set();
  // Draws the best last, above the rest.
  for (const trial of [...drawn].reverse()) {
    const points = trial.reports
      .filter(([, value]) => Number.isFinite(value))
      .map(([step, value]) => [frameX(across.place(step)), frameY(up.place(value))]);
    if (!points.length) continue;
    const kind = trial.best ? 'best' : trial.state;
    kinds.add(kind);
    svg.append(pathOfTrial(trial, 'l ' + kind, pathOf(points)));
    if (kind !== 'complete') svg.append(marker(trial, kind, ...points[points.length - 1]));
  }
  const more =
    study.reports_in_all > drawn.length
      ? `${drawn.length} of ${study.reports_in_all} trials with reports are drawn, among them the best.`
      : null;
  return [svg, legend(kinds), more && note(more)];
}

// An axis of parallel coordinates, with the place of each trial; null for a trial without this hyperparameter.
function parallelAxis(study, lines, param, k) {
  const values = lines.map(trial => trial.params[k]);
  if (param.choices) {
    const texts = [...new Set([...param.choices, ...values.filter(value => value !== null)])];
    const axis = new ChoiceAxis(texts.map(text => cut(text, 14)));
    const places = values.map(value => (value === null ? null : axis.place(texts.indexOf(value))));
    return {title: param.name, axis, places};
  }
  const ends = [param.low, param.high, ...values].filter(Number.isFinite);
  const low = ends.length ? Math.min(...ends) : 0;
  const axis = new Axis(low, ends.length ? Math.max(...ends) : 0, param.log && low > 0, param.whole);
  const places = values.map(value => (Number.isFinite(value) ? axis.place(value) : null));
  return {title: param.name, axis, places};
}

// How good each of these trials is in the first objective, from 0 for the worst to 1 for the best.
export function meritsOf(study, trials) {
  const losses = trials.map(({values: [value]}) => {
    if (value === null || Number.isNaN(value)) return Infinity;
    return isMinimized(study.objectives[0]) ? value : -value;
  });
  const sorted = [...losses].sort((a, b) => (a === b ? 0 : a < b ? -1 : 1));
  const better = new Map();
  sorted.forEach((loss, i) => better.has(loss) || better.set(loss, i));
  return losses.map(loss => 1 - better.get(loss) / Math.max(1, trials.length - 1));
}

// A line for each complete trial through the values of its hyperparameters.
export function parallelChart(study) {
  const mostAxes = 12;
  const lines = study.trials.filter(trial => trial.state === 'complete');
  if (!lines.length || !study.params.length) return [];
  const axes = [];
  study.params.forEach((param, k) => {
    const isThere = lines.some(trial => trial.params[k] !== null);
    if (isThere && axes.length < mostAxes) axes.push(parallelAxis(study, lines, param, k));
  });
  const params = axes.length;
  study.objectives.forEach((_, k) => {
    const axis = axisOfObjective(study, k);
    const places = lines.map(({values}) => (Number.isFinite(values[k]) ? axis.place(values[k]) : null));
    axes.push({title: objectiveTitle(study, k), axis, places});
  });
  const margin = 44;
  const top = 48;
  const bottom = 400;
  const absent = 436;
  const gap = Math.min(Math.max(1000 / (axes.length - 1), 150), 260);
  const width = 2 * margin + (axes.length - 1) * gap + 60;
  const x = k => margin + k * gap;
  const y = place => bottom - place * (bottom - top);
  const hasAbsent = axes.some(({places}) => places.includes(null));
  const label =
    'Parallel coordinates: a line for each complete trial through its hyperparameters. ' +
    'Arrow keys go through the trials.';
  const svg = make('svg', {
    class: 'chart parallel',
    style: {'min-width': `${(width * 0.72).toFixed(0)}px`, 'max-width': `${(width * 1.1).toFixed(0)}px`},
    viewBox: `0 0 ${width.toFixed(0)} ${hasAbsent ? 452 : 420}`,
    role: 'group',
    tabindex: 0,
    'aria-label': label
  });
  const merits = meritsOf(study, lines);
  for (let i = lines.length - 1; i >= 0; --i) {
    const points = axes.map(({places}, k) => [x(k), places[i] === null ? absent : y(places[i])]);
    const merit = `v${Math.round(merits[i] * 9)}`;
    svg.append(pathOfTrial(lines[i], 'l ' + merit, pathOf(points), {'--own': `var(--${merit})`}));
  }
  axes.forEach(({title, axis, places}, k) => {
    const titled = {
      class: 'axis',
      x: k === 0 ? 2 : x(k).toFixed(1),
      y: 16,
      'text-anchor': k === 0 ? 'start' : 'middle'
    };
    svg.append(
      path('rail', `M${x(k).toFixed(1)} ${top}V${bottom}`),
      make('text', titled, make('title', title), cutName(title, 14))
    );
    const tick = (at, text) =>
      make('text', {class: 'halo', x: (x(k) + 6).toFixed(1), y: at.toFixed(1), dy: '.35em'}, text);
    if (axis.log) svg.append(make('text', {x: x(k).toFixed(1), y: 35, 'text-anchor': 'middle'}, 'log'));
    for (const [value, text] of labelled(axis.ticks(5), axis.texts && (i => axis.texts[i])))
      svg.append(tick(y(axis.place(value)), text));
    if (k < params && places.includes(null)) svg.append(tick(absent, 'absent'));
  });
  const scale = make(
    'span',
    objectiveTitle(study, 0) + ': worse ',
    make('i', {class: 'scale'}),
    ' better, by rank'
  );
  const more =
    params === mostAxes && study.params_in_all > mostAxes
      ? `${mostAxes} of ${study.params_in_all} hyperparameters are drawn, the most important.`
      : null;
  return [
    make('div', {class: 'wide', role: 'region', 'aria-label': 'Parallel coordinates'}, svg),
    make('p', {class: 'legend'}, scale),
    more && note(more)
  ];
}
