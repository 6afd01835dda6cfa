import assert from 'node:assert/strict';
import {test} from 'node:test';

import {nearest, smoothed} from '../../src/report/page/chart.js';

test('the nearest of points in order is found, and the later of two that are as near', () => {
  const points = [0, 10, 20, 40].map(x => ({x}));
  const places = [-5, 4, 6, 29, 31, 100].map(x => nearest(points, x));
  assert.deepEqual(places, [0, 0, 1, 2, 3, 3]);
  assert.equal(nearest(points, 5), 1);
});

test('smoothing begins at the first value and passes over what is not finite', () => {
  // Weights 1/2 and 1/4 of 3 and 1, divided by their sum.
  assert.deepEqual(smoothed([1, 3], 0.5), [1, (0.25 * 1 + 0.5 * 3) / 0.75]);
  assert.deepEqual(
    smoothed([2, NaN, 2], 0.9).map(value => value.toFixed(9)),
    ['2.000000000', 'NaN', '2.000000000']
  );
  assert.deepEqual(smoothed([4, 5, 6], 0), [4, 5, 6]);
});
