// Numbers, durations, sizes and times as texts.

export function numberText(value, digits = 4) {
  if (typeof value === 'string') value = Number(value);
  if (value === undefined || value === null) return '–';
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞';
  const size = Math.abs(value);
  let text;
  if (Number.isInteger(value) && size < 1e9) text = value.toLocaleString('en-GB');
  else if (size >= 1e7 || size < 1e-4) {
    const [digitsOf, power] = value.toExponential(digits - 1).split('e');
    text = (digitsOf.includes('.') ? digitsOf.replace(/\.?0+$/, '') : digitsOf) + 'e' + Number(power);
  } else {
    text = String(Number(value.toPrecision(digits)));
    if (size >= 1e4) text = Number(text).toLocaleString('en-GB');
  }
  return text.replaceAll('-', '−');
}
export function durationText(seconds) {
  if (!(seconds >= 0)) return '–';
  if (seconds < 0.9995) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 59.95) return seconds.toFixed(1) + ' s';
  const whole = Math.round(seconds),
    two = n => String(n).padStart(2, '0');
  if (whole < 3600) return Math.floor(whole / 60) + ' min ' + two(whole % 60) + ' s';
  if (whole < 86400) return Math.floor(whole / 3600) + ' h ' + two(Math.floor((whole % 3600) / 60)) + ' min';
  return Math.floor(whole / 86400) + ' d ' + two(Math.floor((whole % 86400) / 3600)) + ' h';
}
export function bytesText(bytes) {
  return bytes >= 1e9 ? (bytes / 1e9).toFixed(2) + ' GB' : Math.round(bytes / 1e6) + ' MB';
}

export const timeText = time =>
  new Date(time * 1000)
    .toLocaleString('en-GB', {
      day: 'numeric',
      month: 'short',
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit'
    })
    .replace(',', '');
// "2024-02-29 12:30 UTC".
export const utcText = time => new Date(time * 1000).toISOString().slice(0, 16).replace('T', ' ') + ' UTC';
export const words = value =>
  typeof value === 'string'
    ? value
    : value === null
      ? 'none'
      : typeof value === 'number'
        ? numberText(value, 8)
        : JSON.stringify(value);

export function cut(text, most) {
  const characters = [...text];
  return characters.length <= most ? text : characters.slice(0, most - 1).join('') + '…';
}
// Cuts the middle instead, since names often differ at their ends.
export function cutName(text, most) {
  const characters = [...text];
  if (characters.length <= most) return text;
  const front = Math.floor(most / 2);
  return characters.slice(0, front).join('') + '…' + characters.slice(front + 1 - most).join('');
}
