import assert from 'node:assert/strict';
import {test} from 'node:test';

import {Axis, ChoiceAxis, labelled} from '../../src/report/page/axis.js';

const isNear = (value, expected) =>
  assert.ok(Math.abs(value - expected) < 1e-12, `${value} is not ${expected}`);

test('a linear axis places a value by its distance from the ends', () => {
  const axis = new Axis(10, 30);
  assert.equal(axis.place(15), 0.25);
  assert.equal(axis.value(0.25), 15);
  assert.equal(axis.place(50), 1);
  assert.equal(axis.free(50), 2);
  assert.ok(axis.holds(30) && !axis.holds(30.1));
});

test('a logarithmic axis places a value by its power of ten', () => {
  const axis = new Axis(1e-4, 1, true);
  isNear(axis.place(1e-3), 0.25);
  isNear(axis.value(0.5), 1e-2);
  assert.equal(axis.place(0), 0);
  assert.ok(!axis.holds(-1));
});

test('an axis of a single value has room on both sides', () => {
  assert.equal(new Axis(40, 40).place(40), 0.5);
  assert.equal(new Axis(0, 0).place(0), 0.5);
});

test('ticks are multiples of 1, 2 or 5 times a power of ten', () => {
  assert.deepEqual(new Axis(0, 10).ticks(5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(new Axis(-0.3, 0.31).ticks(6), [-0.2, 0, 0.2]);
  assert.deepEqual(new Axis(996, 1004).ticks(4), [996, 998, 1000, 1002, 1004]);
});

test('ticks of a logarithmic axis are powers of ten, or 1, 2 and 5 times one where they are few', () => {
  assert.deepEqual(new Axis(1, 1000, true).ticks(5), [1, 10, 100, 1000]);
  assert.deepEqual(new Axis(1, 1e8, true).ticks(5), [1, 100, 10000, 1e6, 1e8]);
  assert.deepEqual(new Axis(2, 8, true).ticks(5), [2, 5]);
});

test('labels have as many digits as tell the ticks apart', () => {
  assert.deepEqual(labelled([1.0001, 1.0002]), [
    [1.0001, '1.0001'],
    [1.0002, '1.0002']
  ]);
  assert.deepEqual(
    labelled([1, 2], (value, digits) => `${value} of ${digits}`).map(([, text]) => text),
    ['1 of 3', '2 of 3']
  );
});

test('an axis of amounts is at least a tenth of its high end long', () => {
  const axis = new Axis(99, 100).widened();
  isNear(axis.high - axis.low, 10);
});

test('ticks of a whole axis are whole, and those of choices are all of the first dozen', () => {
  assert.deepEqual(new Axis(1, 4, false, true).ticks(6), [1, 2, 3, 4]);
  assert.deepEqual(new ChoiceAxis(['a', 'b', 'c']).ticks(), [0, 1, 2]);
  assert.equal(new ChoiceAxis(['a']).place(0), 0.5);
  assert.equal(new ChoiceAxis(Array(100).fill('x')).ticks().length, 12);
});

test('an axis for values is logarithmic for sizes that differ much, and cuts off far worse values', () => {
  assert.ok(Axis.ofValues([0.001, 0.01, 1], true).log);
  assert.ok(!Axis.ofValues([-0.001, 0.01, 1], true).log);
  const values = Array.from({length: 100}, (_, i) => (i % 10) - 5);
  const bad = [1e9, ...values.slice(1)];
  const good = [-5, -15, ...values.slice(2)];
  const axis = Axis.ofValues(bad, true);
  assert.ok(!axis.holds(1e9));
  assert.equal(axis.place(1e9), 1);
  assert.ok(axis.place(4) - axis.place(-5) > 0.5);
  assert.ok(Axis.ofValues(bad, false).holds(-5));
  assert.ok(Axis.ofValues(good, true).holds(-15)); // the axis reaches as far as the best value
  assert.ok(Axis.ofValues(good, false).place(-15) <= 0.1);
});

test('the largest numbers have places and few ticks too', () => {
  const most = Number.MAX_VALUE;
  const axis = new Axis(-most, most);
  assert.equal(axis.place(0), 0.5);
  assert.equal(axis.place(Infinity), 1);
  assert.equal(axis.place(-Infinity), 0);
  const axes = [
    axis,
    new Axis(most, most),
    new Axis(-most, -most),
    new Axis(5e-324, 1e-323),
    new Axis(5e-324, most, true),
    new Axis(1e18, 1e18 + 256),
    Axis.ofValues([], true),
    Axis.ofValues([-most, -1, 0, 1, most], true),
    Axis.ofValues([-most, -1, 0, 1, most], false)
  ];
  for (const each of axes) {
    const ticks = each.ticks(5);
    assert.ok(ticks.length > 0 && ticks.length <= 12, `${ticks}`);
    assert.ok(ticks.every(tick => each.place(tick) >= 0 && each.place(tick) <= 1));
  }
});
