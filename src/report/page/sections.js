// The parts of a run's page: its charts by subject, and its tables.
import {Chart, firstFrom, ownCharts, shared, swatch, toggle} from './chart.js';
import {bars, cell, make, note, row, section, table} from './dom.js';
import {bytesText, durationText, numberText, timeText, words} from './text.js';

const ownName = {
  'report/steps_per_second': 'steps per second',
  'report/samples_per_second': 'examples per second',
  'report/resident_memory': 'resident memory',
  'report/device_memory': 'memory on the device, peak'
};
export class Run {
  constructor(data, index) {
    Object.assign(this, data);
    this.index = index;
    this.byName = new Map();
    for (const column of data.series) {
      const points = column.steps.map((step, i) => {
        const point = {step, x: step, y: Number(column.values[i])};
        if (column.lows.length && column.counts[i] > 1) {
          point.low = column.lows[i];
          point.high = column.highs[i];
        }
        if (column.broken.length && column.broken[i]) point.broken = column.broken[i];
        else if (!Number.isFinite(point.y)) point.broken = 1;
        return point;
      });
      this.byName.set(column.name, points);
    }
  }
  points(name) {
    return this.byName.get(name) ?? [];
  }
  last(name) {
    return this.points(name).findLast(point => Number.isFinite(point.y))?.y;
  }
  // The epoch or the seconds of training at a step, interpolated between the logs that have it.
  at(name, step) {
    const points = this.points(name);
    if (!points.length) return step;
    const i = firstFrom(points, 'step', step),
      before = points[i - 1] ?? {step: 0, y: 0},
      after = points[i];
    if (step >= after.step || after.step === before.step) return after.y;
    return before.y + ((after.y - before.y) * (step - before.step)) / (after.step - before.step);
  }
  // Places all points, and marks, on an axis of steps, epochs or seconds.
  place(x) {
    const name = {epoch: 'epoch', time: 'report/elapsed'}[x];
    for (const points of [...this.byName.values(), this.placed ?? []])
      for (const point of points) point.x = name ? this.at(name, point.step) : point.step;
  }
  // Seconds between the last two logs.
  gap() {
    const points = this.points('report/elapsed');
    return points.length > 1 ? points.at(-1).y - points.at(-2).y : 0;
  }
  timeLeft() {
    const elapsed = this.last('report/elapsed');
    if (this.status !== 'running' || !(this.max_steps > this.step) || !(elapsed > 0) || !(this.step > 0))
      return null;
    return (elapsed / this.step) * (this.max_steps - this.step);
  }
}
const isHidden = name =>
  /^(epoch|total_flos|report\/elapsed|step)$/.test(name) ||
  /(_runtime|_samples_per_second|_steps_per_second|_preparation_time|_jit_compilation_time)$/.test(name) ||
  /_mem_(cpu|gpu)_|^before_init_mem/.test(name);
// The charts in order: a test for the names of series, and the title of the chart that they share, or null for a chart each.
const subjects = [
  [name => /loss/i.test(name), 'Loss'],
  [name => /^(eval|test|val|predict)(_|\/)/.test(name), null],
  [name => /^learning_rate|^lr-/.test(name), 'Learning rate'],
  [name => /grad/.test(name), 'Gradient norm'],
  [name => /^(throughput\/|report\/.*per_second)/.test(name), null],
  [name => /^time\//.test(name), 'Seconds of a step'],
  [name => /^(memory\/|report\/.*memory)/.test(name), 'Memory'],
  [() => true, null]
];

function unitX(range) {
  if (shared.x !== 'time') return {size: 1, text: shared.x};
  if (range > 7200) return {size: 3600, text: 'hours'};
  return range > 180 ? {size: 60, text: 'minutes'} : {size: 1, text: 'seconds'};
}

// Charts of all series. Series with the same title share a chart, at most six in one.
export function chartSection(runs) {
  const names = new Set();
  for (const run of runs) for (const name of run.byName.keys()) if (!isHidden(name)) names.add(name);
  for (const [better, ...worse] of [
    ['memory/resident_mem', 'report/resident_memory'],
    ['memory/peak_allocated_mem', 'report/device_memory'],
    ['throughput/samples_per_sec', 'report/samples_per_second', 'report/steps_per_second'],
    ['report/samples_per_second', 'report/steps_per_second']
  ])
    if (names.has(better)) for (const name of worse) names.delete(name);
  const charts = subjects.map(() => new Map());
  for (const name of names) {
    const subject = subjects.findIndex(([has]) => has(name)),
      title = subjects[subject][1] ?? ownName[name] ?? name,
      those = charts[subject];
    let place = title;
    for (let i = 2; (those.get(place)?.length ?? 0) >= 6; ++i) place = `${title} (${i})`;
    those.set(place, [...(those.get(place) ?? []), name]);
  }
  const nodes = charts.map(those => [...those].map(([title, its]) => chartOf(runs, title, its).node)),
    others = nodes.pop();
  const left = sum(runs.map(run => run.series_left_out)),
    time = runs.length === 1 && runs[0].ranks.length === 1 ? timeFigure(runs[0]) : null;
  return [
    make('div', {class: 'charts'}, ...nodes.flat(), time),
    others.length
      ? make(
          'section',
          {class: 'others'},
          make('h2', 'Other values'),
          make('div', {class: 'charts'}, ...others)
        )
      : null,
    left ? note(`${numberText(left)} more series are left out.`) : null
  ].filter(Boolean);
}
// The look of one of several runs. Lines of earlier runs are wider, so that they show where lines coincide.
function lookOf(run, runs) {
  const wide = Math.min(runs.length, 4) - 1,
    width = 2 + Math.max(wide - run.index, 0) * Math.min(2.4, 4.5 / wide);
  return {
    colour: run.index,
    dash: Math.floor(run.index / 8),
    shape: run.index,
    width,
    turn: run.index,
    turns: runs.length
  };
}
// True if the mark is of a training that was resumed and has made a step since.
const isResumption = (run, mark) => mark.kind === 'resumed' && mark.step < run.step;
function sinceResumed(runs) {
  if (!runs.some(run => run.marks.some(mark => isResumption(run, mark)))) return null;
  if (runs.length > 1) return note('A resumed run counts these times since it was last resumed.');
  return note('Since the training was last resumed.');
}
function chartOf(runs, title, names) {
  const lines = [],
    marks = [],
    signs = [],
    one = runs.length === 1;
  for (const run of runs) {
    names.forEach((name, i) => {
      const points = run.points(name);
      if (!points.length) return;
      const label = ownName[name] ?? name,
        look = one
          ? {colour: i, dash: i, shape: i === 0 && points.length > 40 ? undefined : i}
          : {...lookOf(run, runs), dash: names.length > 1 ? i : Math.floor(run.index / 8)};
      const line = {
        look,
        points,
        id: one ? name : `${run.index}/${name}`,
        label: one ? label : names.length > 1 ? `${run.name}: ${label}` : run.name,
        hidden: () => shared.hidden.has('run ' + run.index)
      };
      lines.push(line);
      const sign = (kind, step, y, text) => {
        signs.push({line, kind, step, x: step, y, text});
        (run.placed ??= []).push(signs.at(-1));
      };
      if (name === run.best_metric && run.best_step !== null)
        sign(
          'best',
          run.best_step,
          run.best_value,
          `best ${name}: ${numberText(run.best_value, 6)} at step ${numberText(run.best_step)}`
        );
      if (name in run.afterwards)
        sign(
          'afterwards',
          run.step,
          Number(run.afterwards[name]),
          `${name} after the training: ${numberText(run.afterwards[name], 6)}`
        );
    });
    for (const mark of run.marks)
      if ((['stopped', 'failed'].includes(mark.kind) && one) || (isResumption(run, mark) && one)) {
        const placed = {
          step: mark.step,
          x: mark.step,
          kind: mark.kind,
          text: `${mark.kind} after step ${numberText(mark.step)}${mark.text ? ': ' + mark.text : ''}`
        };
        marks.push(placed);
        (run.placed ??= []).push(placed);
      }
    run.place(shared.x);
  }
  const isMemory = names.some(name => /^report\/.*memory/.test(name)),
    isAmount = names.every(name => /^(report|memory|throughput|time)\//.test(name));
  return new Chart({
    title,
    lines,
    marks,
    signs,
    isAmount,
    unitX,
    large: title === 'Loss',
    height: title === 'Loss' ? 300 : 210,
    mayBeLog: title === 'Loss',
    format: isMemory
      ? (value, digits = 3) => (value / 1e9).toFixed(Math.max(digits - 1, 1)) + ' GB'
      : undefined
  });
}

const speedOf = run => run.last('report/steps_per_second');
export function tiles(run) {
  const all = make('dl', {class: 'tiles'});
  const add = (title, value, more) => {
    const small = more ? make('small', {title: more}, more) : null;
    all.append(make('div', make('dt', {title}, title), make('dd', ...[value].flat(), small)));
  };
  const metrics = [...new Set([...run.byName.keys(), ...Object.keys(run.afterwards)])].filter(
    name => name.startsWith('eval_') && !isHidden(name) && !/loss/.test(name) && name !== run.best_metric
  );
  if (run.best_metric && run.best_value !== null) {
    const star = make('span', {class: 'star', 'aria-hidden': 'true'}, '★ ');
    add(
      'best ' + run.best_metric,
      [star, numberText(run.best_value)],
      'at step ' + numberText(run.best_step)
    );
  }
  for (const name of ['loss', 'eval_loss', ...metrics].slice(0, 4)) {
    const last = run.last(name),
      value = last ?? run.afterwards[name];
    if (name !== run.best_metric && value !== undefined)
      add(name, numberText(value), last === undefined ? 'after the training' : 'last');
  }
  const examples = run.last('report/samples_per_second'),
    elapsed = run.last('report/elapsed');
  if (speedOf(run) !== undefined)
    add(
      'speed',
      numberText(speedOf(run), 3) + ' steps/s',
      examples === undefined ? '' : numberText(examples, 3) + ' examples/s'
    );
  if (elapsed !== undefined) add('time', durationText(elapsed), 'since ' + timeText(run.began));
  const memory = Math.max(...run.ranks.map(rank => rank.memory)),
    device = Math.max(...run.ranks.map(rank => rank.device_memory ?? 0));
  if (memory > 0)
    add('memory', bytesText(device || memory), device ? 'on the device, peak' : 'of the process');
  return all;
}

// The titles of columns with text, which is aligned left; with `titled`, only the first column has text.
const wordy = titles => titles.map(text => make('th', {scope: 'col', class: 'w'}, text));
const titled = ([first, ...others]) => [...wordy([first]), ...others];

// The runs with their results; a run can be taken out of the charts.
export function runTable(runs) {
  const best = [...new Set(runs.map(run => run.best_metric).filter(Boolean))],
    losses = ['loss', 'eval_loss'].filter(name => runs.some(run => run.last(name) !== undefined));
  const others = [...new Set(runs.flatMap(run => [...run.byName.keys()]))]
    .filter(name => name.startsWith('eval_') && !isHidden(name) && !losses.includes(name))
    .slice(0, 4);
  const rows = runs.map(run => {
    const id = 'run ' + run.index;
    const isShown = make('input', {
      type: 'checkbox',
      id: 'run-' + run.index,
      checked: !shared.hidden.has(id),
      on: {change: () => toggle(id)}
    });
    const number = (value, digits) => cell(value === undefined ? '' : numberText(value, digits));
    const isBest = name => run.best_metric === name && run.best_value !== null;
    return row(
      make('label', isShown, ' ', swatch(lookOf(run, runs)), ' ', run.name),
      cell(make('span', {class: 'pill', 'data-status': run.status}, run.status)),
      number(run.step),
      ...best.map(name => cell(isBest(name) ? '★ ' + numberText(run.best_value) : '')),
      ...[...losses, ...others].map(name => number(run.last(name))),
      cell(durationText(run.last('report/elapsed'))),
      number(speedOf(run), 3)
    );
  });
  const titles = [
    'run',
    'status',
    'step',
    ...best.map(name => 'best ' + name),
    ...[...losses, ...others].map(name => 'last ' + name),
    'time',
    'steps/s'
  ];
  return section('runs-title', 'Runs', table('Runs', titled(titles), rows));
}

const sum = values => values.reduce((a, b) => a + b, 0);
function shade(share) {
  return {background: `color-mix(in srgb, var(--shade) ${Math.round(5 + 70 * share)}%, var(--card))`};
}
function timeFigure(run) {
  const [rank] = run.ranks,
    total = sum(rank.activities);
  const activities = run.activities
    .map((activity, i) => [activity, rank.activities[i]])
    .filter(([, time]) => time > 0)
    .sort((a, b) => b[1] - a[1]);
  if (!activities.length) return null;
  return make(
    'figure',
    {class: 'large'},
    make('figcaption', 'Time by activity'),
    sinceResumed([run]),
    bars(
      activities.map(([activity, time]) => [
        activity,
        time,
        durationText(time),
        ((100 * time) / total).toFixed(1) + ' %'
      ])
    )
  );
}
function timeSection(runs) {
  const rows = runs.flatMap(run =>
    run.ranks.map(rank => ({
      name:
        runs.length > 1
          ? run.name + (run.ranks.length > 1 ? `, rank ${rank.rank}` : '')
          : `rank ${rank.rank}`,
      run,
      rank,
      total: sum(rank.activities)
    }))
  );
  if (rows.length < 2) return null;
  const activities = rows[0].run.activities.filter((_, i) => rows.some(({rank}) => rank.activities[i] > 0));
  return section(
    'time',
    runs.length > 1 ? 'Time by activity' : 'Processes',
    note(
      'Each activity in percent of the wall time.' +
        (runs.length > 1
          ? ''
          : ' A process that waits less in communication than the others is the one that they wait for.')
    ),
    sinceResumed(runs),
    table(
      'Time by activity',
      titled(['', 'total', ...activities, 'memory']),
      rows.map(({name, run, rank, total}) =>
        row(
          name,
          cell(durationText(total)),
          ...activities.map(activity => {
            const share = total > 0 ? (rank.activities[run.activities.indexOf(activity)] ?? 0) / total : 0;
            return cell({style: shade(share)}, (100 * share).toFixed(1));
          }),
          cell(bytesText(rank.device_memory || rank.memory))
        )
      ),
      'shaded'
    )
  );
}

function sampleFigure(sample) {
  const caption = sample.name + (sample.caption ? ': ' + sample.caption : '');
  const figure = (text, ...content) =>
    make('figure', {class: sample.kind}, make('figcaption', text), ...content);
  if (sample.kind === 'text')
    return figure(caption, make('pre', {tabindex: 0}, sample.content + (sample.is_cut ? ' …' : '')));
  if (sample.is_cut) return figure(caption + ' (too large for this page)');
  return figure(
    caption,
    sample.kind === 'image'
      ? make('img', {alt: caption, src: 'data:image/png;base64,' + sample.content})
      : make('audio', {controls: true, src: 'data:audio/wav;base64,' + sample.content})
  );
}
function sampleSection(run, several) {
  const steps = [...new Set(run.samples.map(sample => sample.step))].sort((a, b) => b - a);
  if (!steps.length) return null;
  return section(
    'samples-' + run.index,
    several ? 'Samples of ' + run.name : 'Samples',
    ...steps.map((step, i) =>
      make(
        'details',
        {id: `samples-${run.index}-${step}`, open: i === 0},
        make('summary', 'step ' + numberText(step)),
        make(
          'div',
          {class: 'samples'},
          ...run.samples.filter(sample => sample.step === step).map(sampleFigure)
        )
      )
    )
  );
}

function matrixSection(run, matrix, several) {
  const classes = matrix.classes.length ? matrix.classes : matrix.rows.map((_, i) => String(i));
  const isDense = classes.length > 20,
    totals = matrix.rows.map(sum),
    right = sum(matrix.rows.map((counts, i) => counts[i]));
  const heads = classes.map(name => make('th', {scope: 'col', title: name}, isDense ? '' : name));
  const rows = matrix.rows.map((counts, i) => {
    const share = j => (totals[i] > 0 ? counts[j] / totals[i] : 0);
    const cells = counts.map((count, j) => {
      const title =
        `label ${classes[i]}, predicted ${classes[j]}: ${numberText(count)} ` +
        `(${(100 * share(j)).toFixed(1)} % of the label)`;
      const style = i === j ? 'right' : undefined;
      return cell({style: shade(share(j)), class: style, title}, count ? numberText(count, 3) : '');
    });
    const recall = cell({class: 'recall'}, (100 * share(i)).toFixed(0) + ' %');
    return row(make('span', {title: classes[i]}, classes[i]), ...cells, recall);
  });
  return section(
    `matrix-${run.index}-${matrix.name}`,
    `Confusion matrix: ${matrix.name}${several ? ' of ' + run.name : ''}`,
    note(
      'A row for each label, a column for each prediction, at step ' +
        `${numberText(matrix.step)}. Shades are parts of a row; the last column is the recall. ` +
        `${numberText((100 * right) / sum(totals), 4)} % are right.`
    ),
    table('Confusion matrix', [make('th'), ...heads, make('th')], rows, 'matrix' + (isDense ? ' dense' : ''))
  );
}

function rateSection(run, several) {
  const curve = run.learning_rates;
  if (!curve || !curve.learning_rates.length) return null;
  const points = values => curve.learning_rates.map((rate, i) => ({x: Number(rate), y: Number(values[i])}));
  const chart = new Chart({
    title: 'Loss by learning rate',
    own: true,
    logX: true,
    titleX: 'learning rate',
    mayBeLog: true,
    height: 260,
    lines: [
      {label: 'smoothed', id: 'rate smoothed', look: {colour: 0, dash: 0}, points: points(curve.smoothed)},
      {label: 'each step', id: 'rate raw', look: {colour: 7, dash: 2}, points: points(curve.losses)}
    ],
    marks: curve.suggested
      ? [
          {
            x: curve.suggested,
            kind: 'suggested ' + numberText(curve.suggested, 3),
            text: 'the suggested learning rate'
          }
        ]
      : []
  });
  ownCharts.push(chart);
  return section(
    'rates-' + run.index,
    'Learning-rate range test' + (several ? ' of ' + run.name : ''),
    chart.node
  );
}

function argumentSection(runs) {
  const names = [...new Set(runs.flatMap(run => Object.keys(run.arguments)))],
    params = [...new Set(runs.flatMap(run => Object.keys(run.trial_params)))];
  const texts = name => runs.map(run => (name in run.arguments ? words(run.arguments[name]) : ''));
  const differs = name => new Set(texts(name)).size > 1;
  const first =
      runs.length > 1 ? names.filter(differs) : names.filter(name => runs[0].changed.includes(name)),
    rest = names.filter(name => !first.includes(name));
  const rowOf = name => {
    const style = 'w' + (runs.length > 1 && differs(name) ? ' differs' : '');
    return row(name, ...texts(name).map(text => cell({class: style}, text)));
  };
  const titles = titlesOf(runs);
  const filter = make('input', {
    type: 'search',
    id: 'filter',
    placeholder: 'Filter the arguments',
    'aria-label': 'Filter the arguments',
    on: {
      input: () => {
        const text = filter.value.toLowerCase();
        for (const each of content.querySelectorAll('tbody tr'))
          each.hidden = !each.firstChild.textContent.toLowerCase().includes(text);
        if (text) content.querySelector('details')?.setAttribute('open', '');
      }
    }
  });
  const content = make(
    'div',
    first.length
      ? table('Arguments', wordy(titles), first.map(rowOf))
      : make('p', runs.length > 1 ? 'All arguments are the same.' : 'All arguments have their defaults.'),
    rest.length
      ? make(
          'details',
          {id: 'other-arguments'},
          make('summary', `${rest.length} ${runs.length > 1 ? 'that are the same' : 'with their defaults'}`),
          table('Other arguments', wordy(titles), rest.map(rowOf))
        )
      : null
  );
  return [
    params.length
      ? section(
          'trial',
          'Hyperparameters of the trial',
          valueTable(runs, 'Hyperparameters', 'trial_params', value => cell({class: 'w'}, words(value)))
        )
      : null,
    names.length
      ? section('arguments', runs.length > 1 ? 'Arguments that differ' : 'Arguments', filter, content)
      : null
  ];
}

function eventSection(run) {
  if (!run.handlers.length) return null;
  return section(
    'events',
    'Events and their handlers',
    note(
      'Events of Etude in the order of their list, then those of the program. Callbacks run from left to right.'
    ),
    table(
      'Events',
      titled(['event', '']),
      run.handlers.map(({event, callbacks}) => row(event, cell({class: 'w'}, ...callbacks.map(chip))))
    )
  );
}
function chip(name) {
  const writes = name.endsWith(' (writes)');
  return make('span', {class: 'chip' + (writes ? ' writes' : '')}, writes ? name.slice(0, -9) : name);
}
function markSection(run) {
  const rowOf = mark =>
    row(
      timeText(mark.time),
      cell(numberText(mark.step)),
      cell({class: 'w', style: {'min-width': '4.5rem'}}, mark.kind),
      cell({class: 'w'}, mark.text)
    );
  const marks = [...run.marks].reverse(),
    most = 8,
    titles = ['when', 'step', '', ''],
    latest = marks.length > most + 2 ? marks.slice(0, most) : marks,
    earlier = marks.slice(latest.length);
  return section(
    'history',
    'Timeline',
    table('Timeline', titled(titles), latest.map(rowOf)),
    earlier.length
      ? make(
          'details',
          {id: 'earlier'},
          make('summary', `${earlier.length} earlier`),
          table('Earlier entries', titled(titles), earlier.map(rowOf))
        )
      : null
  );
}
const titlesOf = runs => ['', ...(runs.length > 1 ? runs.map(run => run.name) : ['value'])];
// A table of the values in the runs' `field`, by name; null if there are none.
function valueTable(runs, title, field, cellOf = value => cell(numberText(value, 5))) {
  const names = [...new Set(runs.flatMap(run => Object.keys(run[field])))];
  const rowOf = name =>
    row(name, ...runs.map(({[field]: values}) => (name in values ? cellOf(values[name]) : cell())));
  return names.length ? table(title, titled(titlesOf(runs)), names.map(rowOf)) : null;
}
function summarySection(runs) {
  const summary = valueTable(runs, 'Summary', 'summary'),
    afterwards = valueTable(runs, 'After the training', 'afterwards');
  if (!summary && !afterwards) return null;
  return section(
    'summary',
    'Summary of the training',
    summary && sinceResumed(runs),
    summary,
    afterwards && make('h3', 'Logged after the training'),
    afterwards
  );
}

export function otherSections(runs) {
  const several = runs.length > 1,
    pair = (...each) => {
      const those = each.filter(Boolean);
      return those.length ? make('div', {class: 'pair'}, ...those) : null;
    };
  const matrices = runs.flatMap(run => run.matrices.map(matrix => matrixSection(run, matrix, several)));
  const [params, args] = argumentSection(runs),
    time = timeSection(runs),
    samples = runs.map(run => sampleSection(run, several)),
    rates = runs.map(run => rateSection(run, several));
  return [
    time,
    pair(...matrices, ...(several ? [] : rates)),
    pair(...samples),
    ...(several ? [pair(...rates)] : []),
    params,
    several ? args : pair(args, summarySection(runs)),
    ...(several ? [summarySection(runs)] : [pair(eventSection(runs[0]), markSection(runs[0]))])
  ].filter(Boolean);
}
