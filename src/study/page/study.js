// Builds the page of a study from its data, selects a trial in all charts and the table at once, and sorts the table.

import {bars, make, note, section, table} from '../../report/page/dom.js';
import {cut, cutName, durationText, numberText, utcText} from '../../report/page/text.js';
import {curvesChart, historyChart, objectiveTitle, paretoChart, parallelChart} from './study_charts.js';

const number = value => (value === null ? null : Number(value));

// Parses a page's data, in which numbers that aren't finite are texts.
function readStudy(text) {
  const study = JSON.parse(text);
  for (const trial of study.trials) {
    trial.values = trial.values.map(number);
    trial.params = trial.params.map((value, k) => (study.params[k].choices ? value : number(value)));
    trial.reports = trial.reports?.map(([step, value]) => [step, Number(value)]);
  }
  study.byPlace = [...study.trials].sort((a, b) => a.place - b.place);
  return study;
}
const study = readStudy(document.getElementById('study').textContent);
const mostCells = 40;

const definition = (name, text) => make('div', make('dt', cutName(name, 60)), make('dd', text));
const paramText = (trial, k) =>
  study.params[k].choices ? cut(trial.params[k], 120) : numberText(trial.params[k], 6);

function bestTrial() {
  if (!study.best_in_all) return [make('p', 'No trial is complete.')];
  if (study.objectives.length > 1) {
    const that = study.best_in_all === 1 ? 'trial that' : 'trials that';
    const more = study.best_in_all > study.best.length ? ' and others' : '';
    return [
      make('p', `${study.best_in_all} ${that} no other beats in all values: ${study.best.join(', ')}${more}.`)
    ];
  }
  const [trial] = study.trials;
  return [
    make('h3', 'Best trial'),
    make(
      'dl',
      {class: 'big'},
      definition('trial', String(trial.number)),
      definition('value', numberText(trial.values[0], 6)),
      trial.seconds === null ? null : definition('time', durationText(trial.seconds))
    ),
    make(
      'dl',
      ...study.params.map((param, k) =>
        trial.params[k] === null ? null : definition(param.name, paramText(trial, k))
      )
    )
  ];
}
function summary() {
  const count = (value, text) => make('li', make('b', String(value)), text);
  const times = study.times && study.times.map(utcText);
  return section(
    'summary',
    'Summary',
    make(
      'ul',
      {class: 'counts'},
      count(study.trials_in_all, study.trials_in_all === 1 ? 'trial' : 'trials'),
      ...Object.entries(study.counts).map(([state, value]) => count(value, state))
    ),
    times && note(`From ${times[0]} to ${times[1]}: ${durationText(study.times[1] - study.times[0])}.`),
    ...bestTrial()
  );
}
function importanceBars({importances, importances_in_all: all}, k) {
  const rows = importances.map(([name, share]) => [name, share, `${(100 * share).toFixed(1)} %`]);
  return [
    study.objectives.length > 1 ? make('h3', objectiveTitle(study, k)) : null,
    bars(rows),
    importances.length ? null : make('p', 'No trial is complete.'),
    all > importances.length ? note(`And ${all - importances.length} others.`) : null
  ];
}
function importanceSection() {
  if (!study.params.length) return null;
  const meaning = 'How much each has to do with being among the best tenth of the trials (PED-ANOVA).';
  return section('importance', 'Importance', note(meaning), ...study.objectives.flatMap(importanceBars));
}
function valueSection() {
  if (study.objectives.length === 2) return section('front', 'Pareto front', ...paretoChart(study));
  const charts = study.objectives.flatMap((_, k) => historyChart(study, k));
  return section('history', 'Optimisation history', ...charts);
}

// A cell with a number and the key to sort it by; empty for null.
function numberCell(value, text = each => numberText(each, 6)) {
  return value === null ? make('td') : make('td', {'data-v': value}, text(value));
}
function paramCell(trial, k) {
  const value = trial.params[k];
  if (value === null || !study.params[k].choices) return numberCell(value);
  const text = cut(value, mostCells);
  return make('td', {class: 'w', title: text === value ? undefined : value}, text);
}
function trialRow(trial) {
  const name = trial.link ? make('a', {href: trial.link}, String(trial.number)) : String(trial.number);
  return make(
    'tr',
    {'data-t': trial.number, class: trial.best ? 'top' : undefined},
    make('td', {'data-v': trial.number}, trial.best ? '★ ' : '', name),
    make('td', {class: 'w'}, trial.state),
    ...trial.values.map(value => numberCell(value)),
    numberCell(trial.seconds, durationText),
    ...study.params.map((_, k) => paramCell(trial, k))
  );
}
function trialSection() {
  const head = (title, isText) =>
    make('th', {scope: 'col', class: isText ? 'w' : undefined}, make('button', {title}, cutName(title, 28)));
  const titles = [
    head('trial'),
    head('state', true),
    ...study.objectives.map((_, k) => head(objectiveTitle(study, k))),
    head('time'),
    ...study.params.map(param => head(param.name, Boolean(param.choices)))
  ];
  const [all, some] = [study.params_in_all, study.params.length];
  return section(
    'trials',
    'Trials',
    table('Trials', titles, study.trials.map(trialRow), 'all'),
    some < all ? note(`${some} of ${all} hyperparameters are shown, the most important.`) : null
  );
}
function lead() {
  const [all, some] = [study.trials_in_all, study.trials.length];
  if (some === all) return null;
  return make(
    'p',
    {class: 'lead'},
    `${some} of ${all} trials are drawn and listed: the best ${some / 2}, and others at equal distances. ` +
      'Counts, importances and the best so far are of all.'
  );
}
function parts() {
  const charts = study.objectives.length > 0;
  return [
    make('h1', study.name),
    lead(),
    summary(),
    make('div', {class: 'two'}, valueSection(), importanceSection()),
    charts ? section('parallel', 'Hyperparameters', ...parallelChart(study)) : null,
    charts ? section('curves', 'Curves', ...curvesChart(study)) : null,
    trialSection(),
    make('p', {id: 'chosen', role: 'status', 'aria-live': 'polite'})
  ];
}
document.getElementById('page').append(...parts().filter(Boolean));

const body = document.querySelector('.all tbody');
const chosen = document.getElementById('chosen');
const heads = [...document.querySelectorAll('.all thead th')];
let pinned = null;
let shown = null;

const rows = () => [...body.rows];

function show(trial) {
  if (trial === shown) return;
  shown = trial;
  for (const each of document.querySelectorAll('.on')) each.classList.remove('on');
  chosen.textContent = '';
  if (trial === null) return;
  for (const each of document.querySelectorAll(`[data-t="${CSS.escape(trial)}"]`)) {
    each.classList.add('on');
    // Draws it above the other trials, below the axes.
    if (each.matches('.l, .m')) each.parentNode.insertBefore(each, each.parentNode.querySelector('.rail'));
  }
  const row = rows().find(each => each.dataset.t === trial);
  if (!row) return;
  [...row.cells].forEach(({textContent: text}, i) => {
    if (text) chosen.append(make('span', make('small', heads[i].textContent + ' '), text), ' ');
  });
}

// The trial at the pointer or a few pixels from it.
function trialAt(event) {
  for (const distance of [0, 3, 6, 10]) {
    for (const [right, down] of [
      [0, -1],
      [0, 1],
      [1, 0],
      [-1, 0]
    ]) {
      const x = event.clientX + distance * right;
      const y = event.clientY + distance * down;
      const element = document.elementFromPoint(x, y)?.closest('.chart [data-t]');
      if (element) return element.dataset.t;
    }
  }
  return null;
}

for (const svg of document.querySelectorAll('svg.chart')) {
  const drawn = new Set([...svg.querySelectorAll('[data-t]')].map(each => each.dataset.t));
  svg.addEventListener('pointermove', event => {
    if (event.pointerType === 'mouse') show(trialAt(event) ?? pinned);
  });
  svg.addEventListener('pointerleave', () => show(pinned));
  svg.addEventListener('click', event => {
    pinned = trialAt(event);
    show(pinned);
  });
  svg.addEventListener('keydown', event => {
    const trials = rows()
      .map(row => row.dataset.t)
      .filter(trial => drawn.has(trial));
    const at = trials.indexOf(pinned);
    const last = trials.length - 1;
    const places = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: last
    };
    const place = places[event.key];
    if (event.key === 'Escape') pinned = null;
    else if (place === undefined || !trials.length) return;
    else pinned = trials[Math.min(Math.max(place, 0), last)];
    event.preventDefault();
    show(pinned);
  });
}
body.addEventListener('click', event => {
  const trial = event.target.closest('tr').dataset.t;
  pinned = trial === pinned ? null : trial;
  show(pinned);
});
document.addEventListener('keydown', event => {
  if (event.key !== 'Escape') return;
  pinned = null;
  show(null);
});

// Numbers come before texts, and empty cells last.
function compare(a, b, sign) {
  if (a.text === '' || b.text === '') return (a.text === '') - (b.text === '');
  const texts = [a, b].filter(each => isNaN(each.number)).length;
  if (texts === 2) return sign * a.text.localeCompare(b.text);
  if (texts === 1) return isNaN(a.number) - isNaN(b.number);
  return a.number === b.number ? 0 : sign * (a.number < b.number ? -1 : 1);
}
heads.forEach((head, i) =>
  head.firstElementChild.addEventListener('click', () => {
    const sign = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
    for (const each of heads) each.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
    const keyed = rows().map(row => {
      const value = row.cells[i].dataset.v;
      return {
        row,
        text: value ?? row.cells[i].textContent,
        number: value === undefined ? NaN : Number(value)
      };
    });
    body.append(...keyed.sort((a, b) => compare(a, b, sign)).map(each => each.row));
  })
);
