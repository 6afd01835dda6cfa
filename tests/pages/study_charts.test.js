import assert from 'node:assert/strict';
import {test} from 'node:test';

import './document.js';
import {cut, cutName} from '../../src/report/page/text.js';
import {
  curvesChart,
  historyChart,
  meritsOf,
  paretoChart,
  parallelChart,
  trialTitle
} from '../../src/study/page/study_charts.js';

function trialOf(number, state, values, more = {}) {
  return {number, place: number, state, values, params: [], best: false, seconds: null, ...more};
}
function studyOf(trials, directions = ['minimize'], more = {}) {
  const objectives = directions.map(direction => ({direction, best_so_far: []}));
  return {trials, byPlace: trials, trials_in_all: trials.length, objectives, params: [], ...more};
}
const byClass = (node, name) => node.all(each => (each.attributes.class ?? '') === name);
const paths = (node, name) => byClass(node, name).map(each => [each.attributes['data-t'], each.attributes.d]);
const start = d => d.match(/^M[\d.-]+ [\d.-]+/)[0];

test('the history places each trial by its number and value, and the best so far', () => {
  const study = studyOf([
    trialOf(0, 'complete', [2]),
    trialOf(1, 'complete', [3]),
    trialOf(2, 'complete', [1], {best: true}),
    trialOf(3, 'pruned', [2.5]),
    trialOf(4, 'failed', [null])
  ]);
  study.objectives[0].best_so_far = [
    [0, 2],
    [2, 1]
  ];
  const [svg, legend] = historyChart(study, 0);
  // The plot is 610 wide from 92 and 318 high from 336 up; 1 to 3 with a margin of 2 / 25 is 0.92 to 3.08.
  const places = kind => paths(svg, 'm ' + kind).map(([trial, d]) => [trial, start(d)]);
  assert.deepEqual(places('complete'), [
    ['0', 'M92.0 177.0'],
    ['1', 'M244.5 29.8']
  ]);
  assert.deepEqual(places('best'), [['2', 'M397.0 324.2']]);
  assert.deepEqual(places('pruned'), [['3', 'M549.5 103.4']]);
  assert.deepEqual(places('failed'), [['4', 'M702.0 336.0']]);
  assert.equal(paths(svg, 'so-far')[0][1], 'M92.0 177.0L397.0 177.0L397.0 324.2L702.0 324.2');
  assert.equal(legend.text, 'best so farbestcompletepruned, the last reportfailed');
});

test('values far from the rest are diamonds at the end of the axis, and the rest can be told apart', () => {
  const values = Array.from({length: 50}, (_, i) => (i === 7 ? 1e30 : (i % 10) - 4));
  const [svg, , note] = historyChart(studyOf(values.map((value, i) => trialOf(i, 'complete', [value]))), 0);
  assert.deepEqual(
    paths(svg, 'm complete beyond').map(([trial]) => trial),
    ['7']
  );
  assert.equal(note.text, '1 value is beyond the axis: drawn as a diamond at an end.');
  const heights = new Set(paths(svg, 'm complete').map(([, d]) => start(d).split(' ')[1]));
  assert.equal(heights.size, 10);
});

test('the Pareto front turns where both values are the worse ones', () => {
  const trials = [
    trialOf(0, 'complete', [1, 3], {best: true}),
    trialOf(1, 'complete', [3, 1], {best: true}),
    trialOf(2, 'complete', [3, 3])
  ];
  const [svg] = paretoChart(studyOf(trials, ['minimize', 'minimize']));
  // 1 and 3 are at 0.037 and 0.963 of the plot.
  assert.equal(paths(svg, 'so-far')[0][1], 'M114.6 29.8L679.4 29.8L679.4 324.2');
  assert.equal(paths(svg, 'm best').length, 2);
  assert.equal(paths(svg, 'm complete').length, 1);
});

test('curves are drawn for reports, and those of pruned trials end with a mark', () => {
  const trials = [
    trialOf(2, 'complete', [0.25], {
      best: true,
      reports: [
        [1, 0.8],
        [2, 0.5],
        [3, 0.25]
      ]
    }),
    trialOf(1, 'pruned', [0.75], {
      reports: [
        [1, 0.9],
        [2, 0.75]
      ]
    })
  ];
  const [svg] = curvesChart(studyOf(trials, ['minimize'], {reports_in_all: 2}));
  assert.equal(paths(svg, 'l best').length, 1);
  assert.equal(paths(svg, 'l pruned').length, 1);
  assert.ok(paths(svg, 'm pruned')[0][1].startsWith('M397.0 ')); // step 2 of 1 to 3
  assert.deepEqual(curvesChart(studyOf([trialOf(0, 'complete', [1])])), []);
});

test('parallel coordinates have log axes, choices in their order, and a place for what is absent', () => {
  const params = [
    {name: 'lr', low: 1e-5, high: 1e-1, log: true, whole: false},
    {name: 'optim', choices: ['sgd', 'adamw', 'null', '0.5']},
    {name: 'layers', low: 1, high: 4, log: false, whole: true}
  ];
  const trials = [
    trialOf(2, 'complete', [0.25], {best: true, params: [1e-3, 'sgd', null]}),
    trialOf(0, 'complete', [0.5], {params: [1e-4, 'adamw', 3]}),
    trialOf(5, 'complete', [0.75], {params: [1e-1, 'null', 1]}),
    trialOf(1, 'pruned', [0.75], {params: [1e-2, 'null', 2]})
  ];
  const [box, legend] = parallelChart(studyOf(trials, ['minimize'], {params, params_in_all: 3}));
  const lines = box.all(each => (each.attributes.class ?? '').startsWith('l v'));
  // From 400 up to 48: lr 0.001 is in the middle of its four decades; the best, the second and the worst.
  const known = lines.map(line => [line.attributes['data-t'], line.attributes.class]);
  assert.deepEqual(known, [
    ['5', 'l v0'],
    ['0', 'l v5'],
    ['2', 'l v9']
  ]);
  const heights = lines[2].attributes.d
    .slice(1)
    .split('L')
    .map(each => each.split(' ')[1]);
  assert.deepEqual(heights.slice(0, 3), ['224.0', '400.0', '436.0']);
  const texts = box.all(each => each.tag === 'text').map(each => each.text);
  for (const text of ['1e−5', '0.001', 'sgd', 'adamw', 'null', '0.5', 'absent'])
    assert.equal(texts.filter(each => each === text).length, 1, text);
  assert.equal(texts.filter(text => text === 'log').length, 1);
  assert.equal(legend.text, 'value: worse  better, by rank');
});

test('numbers that are not finite, or are huge, have places in the charts', () => {
  const most = Number.MAX_VALUE;
  const values = [Infinity, -Infinity, most, -most, NaN, 0, null];
  const params = [{name: 'wide', low: -most, high: most, log: false, whole: false}];
  const trials = values.map((value, i) =>
    trialOf(i, 'complete', [value], {params: [values[values.length - 1 - i]]})
  );
  trials[3].reports = [
    [-(2 ** 63), most],
    [2 ** 63, -most]
  ];
  trials[5].reports = [
    [0, NaN],
    [1, Infinity]
  ];
  const study = studyOf(trials, ['minimize'], {params, params_in_all: 1, reports_in_all: 2});
  const pareto = studyOf(
    trials.map(trial => ({...trial, values: [trial.values[0], 1]})),
    ['minimize', 'maximize']
  );
  for (const parts of [historyChart(study, 0), curvesChart(study), parallelChart(study), paretoChart(pareto)])
    for (const path of parts[0].all(each => each.attributes.d)) {
      assert.match(path.attributes.d, /^[-MmLHVhvlazZ0-9. ]+$/);
      for (const each of path.attributes.d.match(/-?[\d.]+/g)) assert.ok(Math.abs(Number(each)) < 3000, each);
    }
});

test('merits are ranks, the same for the same values', () => {
  const trials = [3, 1, 1, 2, NaN].map((value, i) => trialOf(i, 'complete', [value]));
  assert.deepEqual(meritsOf(studyOf(trials), trials), [0.25, 1, 1, 0.5, 0]);
  assert.deepEqual(meritsOf(studyOf(trials, ['maximize']), trials), [1, 0.5, 0.5, 0.75, 0]);
});

test('a long text is cut at its end and a long name in its middle', () => {
  assert.equal(cut('abcdef', 6), 'abcdef');
  assert.equal(cut('abcdefg', 6), 'abcde…');
  assert.equal(cutName('abcdefghij', 6), 'abc…ij');
  assert.equal(trialTitle(trialOf(12, 'pruned', [0.25, null])), 'trial 12, pruned: 0.25');
});
