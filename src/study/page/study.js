// Selects a trial in all charts and the table at once, by pointer or by arrow keys, and sorts the table.
// Texts are read only from the cells of the table, and written only as text.

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
    // Above the other trials, below the axes.
    if (each.matches('.l, .m')) each.parentNode.insertBefore(each, each.parentNode.querySelector('.rail'));
  }
  const row = rows().find(each => each.dataset.t === trial);
  if (!row) return;
  [...row.cells].forEach((cell, i) => {
    if (!cell.textContent) return;
    const pair = document.createElement('span');
    const name = document.createElement('small');
    name.textContent = heads[i].textContent + ' ';
    pair.append(name, cell.textContent);
    chosen.append(pair, ' ');
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
