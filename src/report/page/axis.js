import {numberText} from './text.js';

// An axis from low to high, both finite; positive if it is logarithmic.
export class Axis {
  constructor(low, high, log = false) {
    this.log = log;
    this.low = log ? Math.log10(low) : low;
    this.high = log ? Math.log10(high) : high;
    if (!(this.high > this.low)) {
      const room = Math.abs(this.low) * 0.05 || 0.5;
      this.low -= room;
      this.high += room;
    }
  }
  static around(values, log) {
    const axis = new Axis(values[0], values[values.length - 1], log),
      room = (axis.high - axis.low) * 0.06;
    axis.low -= room;
    axis.high += room;
    return axis;
  }
  // At least a tenth of its high end long, for amounts, whose small changes else look like jumps.
  widened() {
    const missing = Math.abs(this.high) * 0.1 - (this.high - this.low);
    if (!this.log && missing > 0) ((this.low -= missing / 2), (this.high += missing / 2));
    return this;
  }
  place(value) {
    if (this.log) value = value > 0 ? Math.log10(value) : this.low;
    return Math.min(Math.max((value - this.low) / (this.high - this.low), 0), 1);
  }
  // The same, but beyond the ends too.
  free(value) {
    return ((this.log ? Math.log10(value) : value) - this.low) / (this.high - this.low);
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
    if (this.log) {
      const first = Math.ceil(this.low - 1e-9),
        last = Math.floor(this.high + 1e-9);
      if (last - first >= 1) {
        const step = Math.ceil((last - first + 1) / most),
          ticks = [];
        for (let power = first; power <= last; power += step) ticks.push(10 ** power);
        return ticks;
      }
      const ticks = [];
      for (let power = Math.floor(this.low); power <= this.high; ++power)
        for (const digit of [1, 2, 5]) if (this.holds(digit * 10 ** power)) ticks.push(digit * 10 ** power);
      return ticks.length > 1 ? ticks : [10 ** this.low, 10 ** this.high];
    }
    const rough = (this.high - this.low) / most,
      size = 10 ** Math.floor(Math.log10(rough)),
      ticks = [];
    const step = [1, 2, 5, 10].map(factor => factor * size).find(each => each >= rough * 0.999);
    for (let i = Math.ceil(this.low / step - 1e-9); i * step <= this.high + step * 1e-6; ++i)
      ticks.push(Math.abs(i) < 1e-9 ? 0 : Number((i * step).toPrecision(12)));
    return ticks;
  }
}

// Ticks with labels that have as many digits as tell them apart.
export function labelled(ticks, format) {
  for (let digits = 3; ; ++digits) {
    const texts = ticks.map(value => (format ? format(value, digits) : numberText(value, digits)));
    if (digits === 12 || new Set(texts).size === texts.length)
      return ticks.map((value, i) => [value, texts[i]]);
  }
}
