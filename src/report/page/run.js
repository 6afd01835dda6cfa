// Builds a run's page from its data, and reloads it while the training runs.
import {redraw, shared} from './chart.js';
import {make} from './dom.js';
import {Run, chartSection, otherSections, runTable, tiles} from './sections.js';
import {durationText, numberText, timeText} from './text.js';

const runs = JSON.parse(document.getElementById('runs').textContent).runs.map((data, i) => new Run(data, i));
const single = runs.length === 1,
  live = single && runs[0].status === 'running';
const saved = history.state?.report ?? {};
Object.assign(shared, saved.shared);
let {theme = 'auto', updates = true} = saved;
function applyTheme() {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
function keep() {
  const open = [...document.querySelectorAll('details[open]')].map(each => each.id).filter(Boolean);
  const focus = document.activeElement?.id || null;
  const {smooth, scale, x, hidden, view} = shared;
  const report = {
    shared: {smooth, scale, x, hidden, view},
    theme,
    updates,
    open,
    focus,
    scroll: [scrollX, scrollY],
    filter: document.getElementById('filter')?.value
  };
  history.replaceState({report}, '');
}
shared.changed = keep;

const page = document.getElementById('page');
const age = make('span');
function control(type, id, more, act) {
  const input = e => {
    act(e.target);
    keep();
  };
  return make('input', {type, id, ...more, on: {input}});
}
function choice(name, title, values, chosen, act) {
  const option = value => {
    const more = {name, value, checked: value === chosen};
    return make(
      'label',
      control('radio', name + '-' + value, more, () => act(value)),
      make('b', value)
    );
  };
  return make('fieldset', {class: 'choice'}, make('legend', title), make('span', ...values.map(option)));
}
function header() {
  const [run] = runs;
  const updating = control('checkbox', 'updates', {checked: updates}, box => (updates = box.checked));
  const tools = make(
    'div',
    {class: 'tools'},
    live ? make('label', updating, 'updates itself') : null,
    choice('theme', 'Theme', ['auto', 'light', 'dark'], theme, value => {
      theme = value;
      applyTheme();
    })
  );
  if (!single) return [make('header', make('div', make('h1', runs.length + ' runs')), tools), runTable(runs)];
  const left = run.timeLeft();
  const facts = [
    run.max_steps > 0
      ? `step ${numberText(run.step)} of ${numberText(run.max_steps)}`
      : `step ${numberText(run.step)}`,
    run.num_train_epochs > 0
      ? `epoch ${numberText(run.epoch, 3)} of ${numberText(run.num_train_epochs)}`
      : null,
    run.world_size > 1 ? numberText(run.world_size) + ' processes' : null,
    run.trial_name ? 'trial ' + run.trial_name : null,
    left === null ? null : 'about ' + durationText(left) + ' left'
  ].filter(Boolean);
  return [
    make(
      'header',
      make(
        'div',
        make('h1', run.name),
        make(
          'p',
          {class: 'status'},
          make('span', {class: 'pill', 'data-status': run.status}, run.status),
          ...facts.map(fact => make('span', fact)),
          age
        )
      ),
      tools
    ),
    run.max_steps > 0 && run.status === 'running'
      ? make('progress', {
          max: run.max_steps,
          value: Math.min(run.step, run.max_steps),
          'aria-label': 'progress of the training'
        })
      : null,
    run.reason ? make('p', {class: 'reason ' + run.status}, run.reason) : null,
    tiles(run)
  ];
}
function toolbar() {
  const showAll = () => {
    shared.view = null;
    shared.hidden.clear();
    redraw();
    keep();
  };
  return make(
    'div',
    {class: 'tools bar', role: 'toolbar', 'aria-label': 'Choices of all charts'},
    choice('x', 'X axis', ['step', 'epoch', 'time'], shared.x, value => {
      shared.x = value;
      shared.view = null;
      for (const run of runs) run.place(value);
      redraw();
    }),
    choice('scale', 'Y axis', ['auto', 'linear', 'log'], shared.scale, value => {
      shared.scale = value;
      redraw();
    }),
    make(
      'label',
      'Smoothing',
      control('range', 'smooth', {min: 0, max: 0.99, step: 0.01, value: shared.smooth}, ({value}) => {
        shared.smooth = Number(value);
        redraw();
      })
    ),
    make('button', {type: 'button', class: 'plain', id: 'all', on: {click: showAll}}, 'Show all')
  );
}

applyTheme();
for (const run of runs) run.place(shared.x);
page.append(...header().filter(Boolean), toolbar(), ...chartSection(runs), ...otherSections(runs));
let width = 0;
new ResizeObserver(() => {
  if (page.clientWidth !== width) {
    width = page.clientWidth;
    redraw();
  }
}).observe(page);
// Fades a table at each side where it continues.
function fade(box) {
  for (const [side, rest] of [
    ['before', box.scrollLeft],
    ['after', box.scrollWidth - box.clientWidth - box.scrollLeft]
  ]) {
    box.classList.toggle(side, rest > 1);
    box.style.setProperty('--' + side, Math.min(Math.max(rest, 0), 48) + 'px');
  }
}
const boxes = new ResizeObserver(entries => {
  for (const {target} of entries) fade(target);
});
for (const box of document.querySelectorAll('.wide')) {
  boxes.observe(box);
  box.addEventListener('scroll', () => fade(box));
}
for (const id of saved.open ?? []) document.getElementById(id)?.setAttribute('open', '');
if (saved.filter) {
  const box = document.getElementById('filter');
  if (box) {
    box.value = saved.filter;
    box.dispatchEvent(new Event('input'));
  }
}
document.addEventListener('toggle', keep, true);
redraw();
if (saved.focus) document.getElementById(saved.focus)?.focus({preventScroll: true});
if (saved.scroll) scrollTo(...saved.scroll);

const seconds = () => Math.max(0, Date.now() / 1000 - runs[0].written);
function tell() {
  const silent = live && seconds() > Math.max(120, 20 * runs[0].interval, 5 * runs[0].gap());
  age.textContent =
    `written ${durationText(Math.floor(seconds()) || 0.5)} ago` +
    (silent ? ': no news since, so it may have been killed' : '');
  if (!live) age.textContent = 'written ' + timeText(runs[0].written);
}
if (single) tell();
if (live) {
  // A page without updates is reloaded less and less often.
  const pause = Math.min(Math.max(runs[0].interval, 2, seconds() / 5), 60),
    begin = Date.now();
  setInterval(() => {
    tell();
    const busy = shared.cursor !== null || document.hidden || !getSelection().isCollapsed;
    if (updates && !busy && Date.now() - begin > pause * 1000) {
      keep();
      location.reload();
    }
  }, 1000);
}
