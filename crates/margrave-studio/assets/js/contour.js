// Lines of equal score on a grid: marching squares.

/**
 * Pieces of the line where the value is `level`, as x0, y0, x1, y1 in cells; node (column, row) is at (column, row).
 * @param {ArrayLike<number>} values  Row by row
 * @param {number} columns
 * @param {number} rows
 * @param {number} level
 * @returns {number[]}
 */
export function contour(values, columns, rows, level) {
  /** @type {number[]} */
  const out = [];
  for (let row = 0; row + 1 < rows; row += 1) {
    for (let column = 0; column + 1 < columns; column += 1) {
      const at = row * columns + column;
      const a = values[at] - level;
      const b = values[at + 1] - level;
      const c = values[at + columns + 1] - level;
      const d = values[at + columns] - level;
      const kind = (a > 0 ? 1 : 0) | (b > 0 ? 2 : 0) | (c > 0 ? 4 : 0) | (d > 0 ? 8 : 0);
      if (kind === 0 || kind === 15) continue;
      const from = out.length;
      if (a > 0 !== b > 0) out.push(column + a / (a - b), row);
      if (b > 0 !== c > 0) out.push(column + 1, row + b / (b - c));
      if (c > 0 !== d > 0) out.push(column + 1 - c / (c - d), row + 1);
      if (d > 0 !== a > 0) out.push(column, row + 1 - d / (d - a));
      // Four cuts are two pieces; the sign in the middle says which belong together.
      if (out.length - from === 8 && a + b + c + d > 0 === a > 0) {
        const [x1, y1, x3, y3] = [out[from + 2], out[from + 3], out[from + 6], out[from + 7]];
        const [x0, y0, x2, y2] = [out[from], out[from + 1], out[from + 4], out[from + 5]];
        out.length = from;
        out.push(x0, y0, x1, y1, x2, y2, x3, y3);
      } else if (out.length - from === 8) {
        const [x0, y0, x1, y1, x2, y2, x3, y3] = out.splice(from, 8);
        out.push(x0, y0, x3, y3, x1, y1, x2, y2);
      }
    }
  }
  return out;
}
