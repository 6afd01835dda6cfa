import {numberText} from './text.js';

// An axis from low to high, both finite, and positive if it is logarithmic. If `whole`, ticks are whole numbers.
export class Axis {
  constructor(low, high, log = false, whole = false) {
    this.log = log;
    this.whole = whole;
    this.low = log ? Math.log10(low) : low;
    this.high = log ? Math.log10(high) : high;
    if (!(this.high > this.low)) {
      const room = Math.abs(this.low) * 0.05 || 0.5;
      this.low = Math.max(this.low - room, -Number.MAX_VALUE);
      this.high = Math.min(this.high + room, Number.MAX_VALUE);
    }
  }
  static around(low, high, log) {
    const axis = new Axis(low, high, log);
    return axis.padded((axis.high - axis.low) * 0.06);
  }
  // An axis for finite values of an objective. Values that are far worse than most fall beyond its end, so that the rest can be
  // told apart. It is logarithmic for positive values of very different sizes.
  static ofValues(values, isMinimized) {
    if (!values.length) return new Axis(0, 1);
    let sorted = [...values].sort((a, b) => a - b);
    const log = sorted[0] > 0 && sorted.at(-1) / 100 > sorted[0];
    if (log) sorted = sorted.map(Math.log10);
    if (!isMinimized) sorted.reverse();
    // Computes with quarters, since the distance between two numbers may overflow.
    const end = (middle, near, far, times) => {
      const most = near / 4 - middle / 4;
      const isFar = most !== 0 && Math.abs(far / 4 - middle / 4) > times * Math.abs(most);
      return isFar && Number.isFinite(middle + 6 * most) ? middle + 6 * most : far;
    };
    const at = tenths => sorted[Math.floor(((sorted.length - 1) * tenths) / 10)];
    // A best value that is this far from the rest can't be told from a mistake.
    const best = end(at(5), at(1), sorted[0], 1000);
    const worst = end(best, at(9), sorted.at(-1), 3);
    const axis = new Axis(Math.min(best, worst), Math.max(best, worst));
    axis.log = log;
    const margin = (axis.high - axis.low) / 25;
    const hasRoom = Number.isFinite(axis.low - margin) && Number.isFinite(axis.high + margin);
    return best !== worst && hasRoom ? axis.padded(margin) : axis;
  }
  // Makes the axis at least a tenth of its high end long, for amounts, whose small changes would look like jumps otherwise.
  widened() {
    const missing = Math.abs(this.high) * 0.1 - (this.high - this.low);
    return !this.log && missing > 0 ? this.padded(missing / 2) : this;
  }
  padded(room) {
    this.low -= room;
    this.high += room;
    return this;
  }
  place(value) {
    if (this.log && !(value > 0)) return 0;
    return Math.min(Math.max(this.free(value), 0), 1);
  }
  // The same, but also beyond the ends. Computes with halves, since the range of two numbers may overflow.
  free(value) {
    const at = this.log ? Math.log10(value) : value;
    return (at / 2 - this.low / 2) / (this.high / 2 - this.low / 2);
  }
  holds(value) {
    if (this.log) value = value > 0 ? Math.log10(value) : this.low - 1;
    return value >= this.low && value <= this.high;
  }
  value(place) {
    const at = this.low + place * (this.high - this.low);
    return this.log ? 10 ** at : at;
  }
  ticks(most) {
    return this.log ? this.logTicks(most) : this.linearTicks(most);
  }
  logTicks(most) {
    const first = Math.ceil(this.low - 1e-9);
    const last = Math.floor(this.high + 1e-9);
    const ticks = [];
    if (last - first >= 1) {
      const step = Math.ceil((last - first + 1) / most);
      for (let power = first; power <= last; power += step) ticks.push(10 ** power);
      return ticks;
    }
    for (let power = Math.floor(this.low); power <= this.high; ++power)
      for (const digit of [1, 2, 5]) if (this.holds(digit * 10 ** power)) ticks.push(digit * 10 ** power);
    return ticks.length > 1 ? ticks : [10 ** this.low, 10 ** this.high];
  }
  linearTicks(most) {
    const rough = this.high / most - this.low / most;
    const size = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map(factor => factor * size).find(each => each >= rough * 0.999);
    if (this.whole) step = Math.max(step, 1);
    if (!(size > 0) || !Number.isFinite(step)) return [this.low, this.high];
    const ticks = [];
    const first = Math.ceil(this.low / step - 1e-9);
    // Counts the steps, since adding 1 to a large number may not change it.
    for (let i = 0; i <= 2 * most + 1; ++i) {
      const value = (first + i) * step;
      if (value > this.high + step * 1e-6) break;
      ticks.push(Math.abs(first + i) < 1e-9 ? 0 : Number(value.toPrecision(12)));
    }
    return ticks;
  }
}

// An axis with a place for each text; its values are their indices.
export class ChoiceAxis extends Axis {
  constructor(texts) {
    super(0, texts.length - 1, false, true);
    this.texts = texts;
  }
  ticks() {
    const step = Math.floor((this.texts.length - 1) / 12) + 1;
    return this.texts.map((_, i) => i).filter(i => i % step === 0);
  }
}

// Labels the ticks with just enough digits to tell them apart.
export function labelled(ticks, format) {
  for (let digits = 3; ; ++digits) {
    const texts = ticks.map(value => (format ? format(value, digits) : numberText(value, digits)));
    if (digits === 12 || new Set(texts).size === texts.length)
      return ticks.map((value, i) => [value, texts[i]]);
  }
}
