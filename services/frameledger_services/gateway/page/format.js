/** Times, numbers and names as people read them. */

const CLOCK = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const SHORT = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'});
const DAY = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short'});
const WHOLE = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'medium'});
const NUMBER = new Intl.NumberFormat();

/** Returns the time of day with tenths of a second, where this browser is. */
export function clock(time) {
  const date = new Date(time);
  return `${CLOCK.format(date)}.${Math.floor(date.getMilliseconds() / 100)}`;
}

/** Returns the time of day, with the date if it is not today's. */
export function moment(time) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? SHORT.format(date) : `${DAY.format(date)}, ${SHORT.format(date)}`;
}

/** Returns date and time. */
export function whole(time) {
  return WHOLE.format(new Date(time));
}

/** Returns a number with its thousands apart. */
export function number(value) {
  return NUMBER.format(value);
}

/** Returns milliseconds as a length of time. */
export function length(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** Returns the count with its noun: "1 frame", "2 frames". */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Returns the name of a type without what all of them end with. */
export function typeName(type) {
  return type.replace(/Frame$/, '');
}
