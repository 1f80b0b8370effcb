// Numbers as short text: the rules of the program's own output, so that page and terminal agree to the digit.

/**
 * A number to `digits` significant digits, plain where that is short, with an exponent where it is not.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  // Round first: 9.9996 to four digits has the exponent of 10.00.
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const exponent = Number(power);
  const text =
    exponent >= -4 && exponent < Math.max(digits, 6)
      ? trim(value.toFixed(Math.max(digits - 1 - exponent, 0)))
      : `${trim(mantissa)}e${exponent}`;
  return text.replace("-", "−").replace("e-", "e−");
}

/**
 * The same with the signs of a keyboard, for commands and input fields.
 * @param {number} value
 * @param {number} [digits]
 */
export function plain(value, digits = 4) {
  return number(value, digits).replaceAll("−", "-");
}

/** @param {string} text */
function trim(text) {
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

/**
 * A whole number in groups of three: 581 012.
 * @param {number | null | undefined} value
 */
export function count(value) {
  if (value === null || value === undefined) return "–";
  const digits = String(Math.round(value));
  return digits.length > 4 ? digits.replace(/\B(?=(\d{3})+$)/g, "\u202f") : digits;
}

/**
 * A duration: 12 ms, 3.4 s, 2 min 5 s.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/**
 * A share as per cent.
 * @param {number | null | undefined} share
 * @param {number} [digits]
 */
export function percent(share, digits = 3) {
  return share === null || share === undefined ? "–" : `${number(100 * share, digits)} %`;
}

/** @param {number} bytes */
export function bytes(bytes) {
  return bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${number(bytes / 1e3, 3)} kB` : `${number(bytes / 1e6, 3)} MB`;
}

/**
 * Ticks of a linear axis: about `wanted` round numbers between the ends.
 * @param {number} from
 * @param {number} to
 * @param {number} wanted
 * @returns {number[]}
 */
export function ticks(from, to, wanted) {
  if (!(to > from)) return [from];
  const rough = (to - from) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? 10 * power;
  const out = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + 1e-9 * step; k += 1) out.push(k * step);
  return out;
}

/**
 * The text of a tick: as many decimals as its step needs.
 * @param {number} value
 * @param {number[]} all
 */
export function tick(value, all) {
  const step = all.length > 1 ? Math.abs(all[1] - all[0]) : Math.abs(value);
  if (Math.abs(value) < step * 1e-6) return "0";
  const largest = Math.max(...all.map(Math.abs));
  if (largest >= 1e6 || step < 1e-4) return number(value, 3);
  const decimals = step > 0 ? Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9))) : 2;
  const fine = Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6 ? decimals + 1 : decimals;
  return value.toFixed(fine).replace("-", "−");
}
