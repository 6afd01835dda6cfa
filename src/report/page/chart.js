// The charts of a run as SVG.
import {Axis, labelled} from './axis.js';
import {cell, make, path, pathOf, row, table, xy} from './dom.js';
import {numberText} from './text.js';

const dashes = ['', '7 4', '2 4', '10 4 2 4', '14 5', '4 3 1 3', '1 5', '12 3 3 3 3 3'];
const shapes = [
  'm-4 0a4 4 0 1 0 8 0 4 4 0 1 0-8 0',
  'm-3.6-3.6h7.2v7.2h-7.2z',
  'm0-5 4.6 8h-9.2z',
  'm0-5 4.4 5-4.4 5-4.4-5z',
  'm0 5 4.6-8h-9.2z',
  'm-1.4-4.5h2.8v3.1h3.1v2.8h-3.1v3.1h-2.8v-3.1h-3.1v-2.8h3.1z',
  'm-4.5-3 3-1.5 1.5 1.5 1.5-1.5 3 1.5-1.5 3 1.5 3-3 1.5-1.5-1.5-1.5 1.5-3-1.5 1.5-3z',
  'm-4.6-2.4h9.2v4.8h-9.2z'
];
const signs = {
  best: 'm0-8 2.3 5 5.4.6-4 3.7 1.1 5.3-4.8-2.7-4.8 2.7 1.1-5.3-4-3.7 5.4-.6z',
  afterwards: shapes[0]
};
const colourOf = i => 'var(--c' + (i % 8) + ')';
export const swatch = look =>
  make(
    'svg',
    {class: 'swatch', viewBox: '0 0 26 12', 'aria-hidden': 'true'},
    make('path', {
      d: 'M1 6H25',
      fill: 'none',
      stroke: colourOf(look.colour),
      'stroke-width': look.width ?? 2.2,
      'stroke-dasharray': dashes[look.dash % 8]
    }),
    look.shape === undefined
      ? null
      : make('path', {d: 'M13 6' + shapes[look.shape % 8], fill: colourOf(look.colour)})
  );

// Smooths values with an exponential mean that is corrected for the bias at its start.
export function smoothed(values, weight) {
  let mean = 0,
    total = 0;
  return values.map(value => {
    if (!Number.isFinite(value)) return value;
    mean = weight * mean + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return mean / total;
  });
}

// The state that all charts of a page share: the cursor, the visible part of the axis, and the reader's choices.
export const shared = {
  charts: [],
  cursor: null,
  view: null,
  smooth: 0,
  scale: 'auto',
  x: 'step',
  hidden: new Set(),
  changed() {}
};

// A chart of lines {label, name, look, points: [{x, y, low, high, step, broken}], hidden()}, with marks {x, text, kind} and signs
// {line, x, y, text, kind} of single values. Unless it is `own`, it shares its horizontal axis with the other charts.
export class Chart {
  constructor(options) {
    Object.assign(
      this,
      {marks: [], signs: [], own: false, logX: false, isAmount: false, height: 210},
      options
    );
    this.keys = make('ul', {class: 'keys'});
    this.svg = make('svg', {
      class: 'chart',
      style: {'flex-basis': this.height + 'px', 'min-height': this.height + 'px'},
      tabindex: 0,
      role: 'img',
      on: {
        keydown: e => this.key(e),
        pointermove: e => this.move(e),
        pointerdown: e => this.down(e),
        pointerup: e => this.up(e),
        pointerleave: () => {
          if (!this.drag) this.point(null);
        },
        pointercancel: () => {
          this.drag = null;
          this.point(null);
        },
        dblclick: () => this.zoom(null),
        blur: () => this.point(null)
      }
    });
    this.said = make('p', {class: 'hidden', role: 'status', 'aria-live': 'polite'});
    const numbers = make('details', {on: {toggle: () => this.table(numbers)}}, make('summary', 'Numbers'));
    this.node = make(
      'figure',
      {class: this.large ? 'large' : undefined},
      make('figcaption', this.title),
      this.keys,
      this.svg,
      this.said,
      numbers
    );
    for (const line of this.lines) {
      line.value = make('b');
      line.key = make(
        'button',
        {
          type: 'button',
          'aria-pressed': 'true',
          title: 'shows or hides the line',
          on: {
            click: () => toggle(line.id ?? line.label)
          }
        },
        swatch(line.look),
        make('span', line.label),
        line.value
      );
      this.keys.append(make('li', line.key));
    }
    if (!this.own) shared.charts.push(this);
    this.mine = this.own ? {cursor: null, view: null} : shared;
  }
  shown() {
    return this.lines.filter(line => !shared.hidden.has(line.id ?? line.label) && !line.hidden?.());
  }

  domain() {
    let low = Infinity,
      high = -Infinity;
    for (const chart of this.own ? [this] : shared.charts)
      for (const line of chart.shown())
        for (const point of [line.points[0], line.points.at(-1)])
          if (point && Number.isFinite(point.x))
            ((low = Math.min(low, point.x)), (high = Math.max(high, point.x)));
    return low <= high ? [low, high] : [0, 1];
  }

  // The vertical axis covers most values, so that a few outliers don't flatten the rest.
  range(lines, inView) {
    const values = [];
    for (const line of lines)
      line.points.forEach((point, i) => {
        if (!inView(point) || !Number.isFinite(point.y)) return;
        values.push(shared.smooth ? line.drawn[i] : point.y);
        if (!shared.smooth && point.low !== undefined) values.push(point.low, point.high);
      });
    for (const sign of this.signs)
      if (lines.includes(sign.line) && inView(sign) && Number.isFinite(sign.y)) values.push(sign.y);
    if (!values.length) return new Axis(0, 1);
    values.sort((a, b) => a - b);
    const positive = values[0] > 0,
      ratio = values.at(-1) / values[0];
    const log =
      positive && (shared.scale === 'log' || (shared.scale === 'auto' && this.mayBeLog && ratio > 100));
    const at = share => values[Math.round((values.length - 1) * share)],
      size = v => (log ? Math.log10(v) : v);
    const spread = size(at(0.98)) - size(at(0.02));
    let most = at(1);
    if (
      shared.scale === 'auto' &&
      values.length > 20 &&
      spread > 0 &&
      size(most) - size(at(0.98)) > 4 * spread
    )
      most = log ? 10 ** (size(at(0.98)) + spread) : at(0.98) + spread;
    return Axis.around(values[0], most, log);
  }

  draw() {
    const width = Math.max(this.svg.clientWidth, 180),
      height = Math.max(this.svg.clientHeight, this.height);
    const lines = this.shown();
    const [low, high] = this.mine.view ?? this.domain();
    const across = new Axis(low, high, this.logX),
      inView = point => point.x >= low && point.x <= high;
    for (const line of this.lines) {
      line.key.setAttribute('aria-pressed', String(lines.includes(line)));
      line.drawn = line.points.map(point => point.y);
      if (shared.smooth && line.points.length > 12) line.drawn = smoothed(line.drawn, shared.smooth);
    }
    const up = this.isAmount ? this.range(lines, inView).widened() : this.range(lines, inView);
    const ticks = labelled(up.ticks(Math.max(3, Math.floor(height / 45))), this.format);
    const left = 12 + 7 * Math.max(3, ...ticks.map(([, text]) => text.length)),
      right = 12,
      top = 12,
      bottom = 34;
    const x = value => left + across.place(value) * (width - left - right),
      y = value => height - bottom - up.place(value) * (height - top - bottom);
    const area = {x: left - 5, y: 0, width: width - left - right + 10, height};
    const plot = make('svg', {...area, viewBox: Object.values(area).join(' ')});
    const parts = [];
    for (const [value, text] of ticks)
      parts.push(
        path('grid', `M${xy(left, y(value))}H${width - right}`),
        make('text', {x: left - 7, y: y(value).toFixed(1), dy: '.35em', 'text-anchor': 'end'}, text)
      );
    const unit = this.unitX?.(high - low) ?? {size: 1, text: this.titleX ?? shared.x};
    const scaled = new Axis(...(this.logX ? [low, high] : [low / unit.size, high / unit.size]), this.logX);
    for (const [tick, text] of labelled(scaled.ticks(Math.max(3, Math.floor(width / 65))))) {
      if (!across.holds(tick * unit.size)) continue;
      const at = x(tick * unit.size),
        anchor = at > width - 30 ? 'end' : 'middle';
      parts.push(
        path('grid', `M${xy(at, height - bottom)}v4`),
        make('text', {x: at.toFixed(1), y: height - bottom + 16, 'text-anchor': anchor}, text)
      );
    }
    parts.push(make('text', {x: width - right, y: height - 4, 'text-anchor': 'end'}, unit.text));
    parts.push(
      ...this.drawMarks(
        this.marks
          .filter(inView)
          .map(mark => ({...mark, at: x(mark.x)}))
          .sort((a, b) => a.at - b.at),
        left,
        width - right,
        top,
        height - bottom
      )
    );
    for (const line of lines) {
      const colour = colourOf(line.look.colour);
      const band = [];
      let drawn = '',
        faint = '',
        gap = true,
        markers = '',
        over = '';
      const visible = line.points
        .map((each, i) => ({each, value: line.drawn[i]}))
        .filter(({each}, i) => [i, i + 1, i - 1].some(near => inView(line.points[near] ?? each)));
      const {turn = 0, turns = 1, shape} = line.look,
        every = Math.max(turns, visible.length <= 40 ? 1 : Math.ceil(visible.length / 6));
      visible.forEach(({each, value}, place) => {
        const at = left + across.free(each.x) * (width - left - right);
        if (each.broken) {
          const title =
            `${line.label}: ${each.broken} value${each.broken > 1 ? 's' : ''} ` +
            `up to step ${numberText(each.step)} not finite`;
          plot.append(path('broken', `M${xy(at, top)}m-4-4 8 8m0-8-8 8`, {}, title));
        }
        if (!Number.isFinite(value)) {
          gap = true;
          return;
        }
        const pen = gap ? 'M' : 'L';
        gap = false;
        drawn += pen + xy(at, y(value));
        if (shared.smooth) faint += pen + xy(at, y(each.y));
        if (!up.holds(value) || (!shared.smooth && each.high !== undefined && !up.holds(each.high)))
          over += `M${xy(at, top - 5)}m-4 4 4-5 4 5z`;
        if (each.low !== undefined) band.push([at, y(each.high), y(each.low)]);
        const hasMarker = place % every === Math.floor((every * (turn + 0.5)) / turns);
        if (shape !== undefined && inView(each) && hasMarker)
          markers += 'M' + xy(at, y(value)) + shapes[shape % 8];
      });
      if (band.length > 1 && !shared.smooth) {
        const edge = [...band, ...band.map(([at, , least]) => [at, least]).reverse()];
        plot.append(path('band', pathOf(edge) + 'Z', {fill: colour}));
      }
      if (faint) plot.append(path('line faint', faint, {stroke: colour}));
      const look = {
        stroke: colour,
        style: line.look.width ? {'stroke-width': line.look.width} : {},
        'stroke-dasharray': dashes[line.look.dash % 8]
      };
      plot.append(path('line', drawn, look, line.label));
      if (!markers && visible.length === 1 && drawn) markers = drawn + shapes[(shape ?? 0) % 8];
      if (markers) plot.append(path('dot', markers, {fill: colour}));
      if (over) plot.append(path(undefined, over, {fill: colour}, 'values beyond the axis'));
    }
    for (const {kind, line, text, ...sign} of this.signs)
      if (inView(sign) && lines.includes(line)) {
        const style = {'--its': colourOf(line.look.colour), '--wide': line.look.width ?? 2};
        plot.append(path(kind, 'M' + xy(x(sign.x), y(sign.y)) + signs[kind], {style}, text));
      }
    this.over = make('g');
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.setAttribute('aria-label', this.summary(lines));
    this.svg.replaceChildren(...parts, plot, this.over);
    this.geometry = {x, y, across, left, right, top, bottom, width, height, low, high, lines, unit};
    this.follow();
  }
  // Draws marks as lines with labels, which take several rows where they would overlap.
  drawMarks(marks, left, right, top, bottom) {
    const ends = [];
    return marks.map(mark => {
      const size = 6.6 * mark.kind.length + 8,
        before = mark.at + size > right,
        from = before ? mark.at - size : mark.at;
      let place = ends.findIndex(end => end <= from);
      if (place < 0) place = ends.length;
      ends[place] = from + size;
      return make(
        'g',
        make('title', mark.text),
        path('mark ' + mark.kind, `M${xy(mark.at, top - 6)}V${bottom}`),
        make(
          'text',
          {
            class: mark.kind,
            x: (mark.at + (before ? -4 : 4)).toFixed(1),
            y: top + 1 + 13 * place,
            'text-anchor': before ? 'end' : 'start'
          },
          mark.kind
        )
      );
    });
  }
  summary(lines) {
    const parts = lines.map(line => {
      const values = line.points.map(point => point.y).filter(Number.isFinite),
        last = values.at(-1);
      return values.length
        ? `${line.label}: ${values.length} points, from ${numberText(Math.min(...values))} to ${numberText(Math.max(...values))}, last ${numberText(last)}`
        : line.label + ': no number';
    });
    return `Chart of ${this.title}. ${parts.join('. ')}. Left and right arrow keys go through the points, plus and minus zoom.`;
  }

  // Draws the cursor, and writes the values there next to the names.
  follow() {
    const {x, y, top, bottom, height, low, high, lines} = this.geometry,
      at = this.mine.cursor,
      parts = [];
    if (at !== null && at >= low && at <= high)
      parts.push(path('cursor', `M${xy(x(at), top)}V${height - bottom}`));
    for (const line of this.lines) {
      const i = at === null ? line.points.length - 1 : nearest(line.points, at),
        its = line.points[i],
        isShown = its && at !== null && lines.includes(line) && its.x >= low && its.x <= high;
      line.value.textContent = its ? (this.format ?? numberText)(its.y) : '–';
      if (isShown && Number.isFinite(line.drawn[i])) {
        const shape = shapes[line.look.shape ?? 0];
        parts.push(
          path('dot', 'M' + xy(x(its.x), y(line.drawn[i])) + shape, {fill: colourOf(line.look.colour)})
        );
      }
    }
    this.over.replaceChildren(...parts);
    if (this.drag && this.drag.to !== undefined) {
      const a = Math.min(this.drag.from, this.drag.to),
        b = Math.max(this.drag.from, this.drag.to);
      this.over.append(
        make('rect', {class: 'area', x: a, y: top, width: b - a, height: height - top - bottom})
      );
    }
  }
  point(at) {
    this.mine.cursor = at;
    for (const chart of this.own ? [this] : shared.charts) if (chart.geometry) chart.follow();
  }
  valueAt(e) {
    const {left, right, width, across} = this.geometry,
      box = this.svg.getBoundingClientRect();
    const at = Math.min(Math.max(((e.clientX - box.left) * width) / box.width, left), width - right);
    return [across.value((at - left) / (width - left - right)), at];
  }
  move(e) {
    const [value, at] = this.valueAt(e);
    if (this.drag && Math.abs(at - this.drag.from) > 6) this.drag.to = at;
    this.point(value);
  }
  down(e) {
    if (e.pointerType === 'mouse' && e.button === 0)
      this.drag = {from: this.valueAt(e)[1], value: this.valueAt(e)[0]};
    this.move(e);
  }
  up(e) {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.to === undefined) return;
    const end = this.valueAt(e)[0];
    this.zoom([Math.min(drag.value, end), Math.max(drag.value, end)]);
  }
  zoom(view) {
    this.mine.view = view && view[1] > view[0] ? view : null;
    if (this.own) this.draw();
    else redraw();
    shared.changed();
  }
  key(e) {
    const {low, high, lines} = this.geometry,
      points = lines.map(line => line.points).sort((a, b) => b.length - a.length)[0] ?? [];
    const inside = points.filter(point => point.x >= low && point.x <= high);
    const at = this.mine.cursor === null ? -1 : nearest(inside, this.mine.cursor),
      page = Math.max(1, Math.round(inside.length / 10));
    const middle = this.mine.cursor ?? (low + high) / 2;
    const to = {
      ArrowRight: at + 1,
      ArrowLeft: at < 0 ? inside.length - 1 : at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: inside.length - 1
    }[e.key];
    if (e.key === 'Escape' || e.key === '0') (this.zoom(null), this.point(null));
    else if (e.key === '+') this.zoom([middle - (middle - low) / 2, middle + (high - middle) / 2]);
    else if (e.key === '-')
      this.zoom([
        Math.max(low - (high - low) / 2, this.domain()[0]),
        Math.min(high + (high - low) / 2, this.domain()[1])
      ]);
    else if (to === undefined || !inside.length || e.ctrlKey || e.metaKey || e.altKey) return;
    else {
      const point = inside[Math.min(Math.max(to, 0), inside.length - 1)];
      this.point(point.x);
      this.said.textContent =
        `${this.geometry.unit.text} ${numberText(point.x / this.geometry.unit.size)}: ` +
        lines.map(line => line.label + ' ' + line.value.textContent).join(', ');
    }
    e.preventDefault();
  }
  table(details) {
    if (!details.open || details.querySelector('table')) return;
    const rows = new Map(),
      most = 200;
    this.lines.forEach((line, k) =>
      line.points.forEach(point => {
        const key = point.step ?? point.x;
        if (!rows.has(key)) rows.set(key, []);
        rows.get(key)[k] = point;
      })
    );
    let keys = [...rows.keys()].sort((a, b) => a - b);
    const all = keys.length;
    if (all > most)
      keys = Array.from({length: most}, (_, i) => keys[Math.round((i * (all - 1)) / (most - 1))]);
    const rowOf = key => {
      const points = rows.get(key);
      const cells = this.lines.map((_, k) => cell(points[k] ? numberText(points[k].y, 6) : ''));
      return row(numberText(key), ...cells);
    };
    const titles = [this.own ? this.titleX : 'step', ...this.lines.map(line => line.label)];
    details.append(
      table('Numbers of ' + this.title, titles, keys.map(rowOf)),
      all > most ? make('p', `${most} of ${all} rows.`) : ''
    );
  }
}
// The index of the first point whose `name` is at least `value`, or of the last point; `points` are in order.
export function firstFrom(points, name, value) {
  let low = 0,
    high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][name] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
export function nearest(points, x) {
  const i = firstFrom(points, 'x', x);
  return i > 0 && x - points[i - 1].x < points[i].x - x ? i - 1 : i;
}
export const ownCharts = [];
export function redraw() {
  for (const chart of [...shared.charts, ...ownCharts]) chart.draw();
}
// Shows or hides a line or a run.
export function toggle(id) {
  if (!shared.hidden.delete(id)) shared.hidden.add(id);
  redraw();
  shared.changed();
}
