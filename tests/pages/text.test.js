import assert from 'node:assert/strict';
import {test} from 'node:test';

import {bytesText, durationText, numberText, utcText, words} from '../../src/report/page/text.js';

function check(text, cases) {
  for (const [value, expected] of cases) assert.equal(text(value), expected, `of ${value}`);
}

test('a number has four digits, with a power of ten where it is very large or small', () => {
  check(numberText, [
    [0, '0'],
    [1234567, '1,234,567'],
    [0.0465123, '0.04651'],
    [12346.7, '12,350'],
    [0.00001234567, '1.235e−5'],
    [2e-7, '2e−7'],
    [12345678.5, '1.235e7'],
    [-0.5, '−0.5'],
    [-1e-5, '−1e−5']
  ]);
});

test('a number has as many digits as are asked for', () => {
  assert.equal(numberText(Math.PI, 2), '3.1');
  assert.equal(numberText(Math.PI, 8), '3.1415927');
});

test('a number that is missing or not finite is a sign', () => {
  check(numberText, [
    [undefined, '–'],
    [null, '–'],
    [NaN, 'NaN'],
    ['NaN', 'NaN'],
    ['Infinity', '∞'],
    [-Infinity, '−∞']
  ]);
});

test('a duration has two units, and changes the unit where rounding reaches the next', () => {
  check(durationText, [
    [0, '0 ms'],
    [0.25, '250 ms'],
    [0.9994, '999 ms'],
    [0.9996, '1.0 s'],
    [59.94, '59.9 s'],
    [59.96, '1 min 00 s'],
    [61, '1 min 01 s'],
    [3599.6, '1 h 00 min'],
    [7380, '2 h 03 min'],
    [86400 + 3600, '1 d 01 h'],
    [-1, '–'],
    [NaN, '–'],
    [undefined, '–']
  ]);
});

test('a time is in UTC, to the minute', () => {
  check(utcText, [
    [0, '1970-01-01 00:00 UTC'],
    [-1, '1969-12-31 23:59 UTC'],
    [1709209805, '2024-02-29 12:30 UTC']
  ]);
});

test('a size is in megabytes below one gigabyte', () => {
  check(bytesText, [
    [2.4e6, '2 MB'],
    [999e6, '999 MB'],
    [1.5e9, '1.50 GB']
  ]);
});

test('an argument is shown as its text, its number or its JSON', () => {
  check(words, [
    ['linear', 'linear'],
    [null, 'none'],
    [0.00005, '5e−5'],
    [true, 'true'],
    [[0.9, 0.999], '[0.9,0.999]']
  ]);
});
