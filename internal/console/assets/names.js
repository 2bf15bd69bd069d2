// The names of the buckets, for pages that let one choose.

import { get } from './api.js';

const most = 1000; // more do not fit into a list that a person chooses from

// bucketNames always has the page's own bucket, which may lie beyond the first thousand.
export async function bucketNames(page) {
  const names = [];
  for (let after = null; names.length < most;) {
    const answer = await get('/v1/buckets', { limit: 200, after }, page.signal);
    names.push(...answer.buckets.map((b) => b.bucket));
    if (!answer.next) break;
    after = answer.next;
  }
  if (names.length >= most && page.bucket && !names.includes(page.bucket)) names.unshift(page.bucket);
  return names;
}
