// Two texts side by side, line by line, by the longest common subsequence.
export function sideBySide(left, right) {
  const a = left.split("\n");
  const b = right.split("\n");
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const rows = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) rows.push({ left: a[i++], right: b[j++], same: true });
    else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) rows.push({ left: a[i++], right: null, same: false });
    else rows.push({ left: null, right: b[j++], same: false });
  }
  return rows;
}
