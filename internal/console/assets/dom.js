// Elements by function calls, and a patch of the page that keeps what is the same: focus, scrolling and
// open parts survive live updates. Text always goes in as text, never as markup.

const SVG = 'http://www.w3.org/2000/svg';
const inSVG = new Set(['svg', 'rect', 'path', 'line', 'text', 'g', 'circle', 'title']);

// dispatch finds the handler when the event comes, as a patch may have put another in its place.
function dispatch(event) {
  this.handlers[event.type]?.call(this, event);
}

// h makes an element. Attributes: on… are handlers, null and false are left out, true is an empty value;
// key says which elements of two lists are the same.
export function h(name, attributes, ...children) {
  const e = inSVG.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  e.handlers = {};
  for (const [k, v] of Object.entries(attributes ?? {})) {
    if (v == null || v === false) continue;
    if (k.startsWith('on')) {
      e.handlers[k.slice(2)] = v;
      e.addEventListener(k.slice(2), dispatch);
    } else if (k === 'key') e.key = String(v);
    else if (k === 'vars') for (const [name, value] of Object.entries(v)) e.style.setProperty(name, value);
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...flat(children));
  if (name === 'select' || name === 'input') e.wanted = e.value;
  return e;
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((c) => c != null && c !== false && c !== '')
    .map((c) => (c instanceof Node ? c : document.createTextNode(String(c))));
}

// patch makes the children of an element like the given ones.
export function patch(parent, ...children) {
  morphChildren(parent, flat(children));
}

function morphChildren(parent, wanted) {
  const keyed = new Map();
  for (const c of parent.childNodes) if (c.key != null) keyed.set(c.key, c);
  let at = parent.firstChild;
  for (const want of wanted) {
    const old = want.stands ?? (want.key != null ? keyed.get(want.key) : at);
    if (!old || (old !== want.stands && !same(old, want))) {
      parent.insertBefore(want, at);
      for (const e of want.querySelectorAll?.('keep-here') ?? []) e.replaceWith(e.stands);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else parent.insertBefore(old, at);
    if (!want.stands) morph(old, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.key === b.key && !a.kept;
}

function morph(old, want) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== want.data) old.data = want.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // The user opens and closes these.
    if (!want.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS')) old.removeAttribute(name);
  }
  for (const { name, value } of want.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === 'style')
      old.style.cssText = want.style.cssText; // the attribute is forbidden by the policy
    else old.setAttribute(name, value);
  }
  for (const type of Object.keys(want.handlers ?? {})) {
    if (!old.handlers[type]) old.addEventListener(type, dispatch);
  }
  old.handlers = want.handlers;
  if (old.nodeName === 'SELECT' || old.nodeName === 'INPUT') {
    morphChildren(old, [...want.childNodes]);
    if (old.type === 'radio') old.checked = want.checked;
    else if (old.wanted !== want.wanted) old.value = old.wanted = want.wanted; // else it is as the user left it
    return;
  }
  morphChildren(old, [...want.childNodes]);
}

// keep stands for an element that a script draws or keeps, such as a canvas: the same one stays in the page, with
// its focus, however often the page is drawn.
export function keep(e) {
  e.kept = true;
  const here = document.createElement('keep-here');
  here.stands = e;
  return here;
}

// announce tells a screen reader what has changed.
export function announce(text) {
  const place = document.getElementById('said');
  if (place.textContent !== text) place.textContent = text;
}
