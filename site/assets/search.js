// Searches the pages in the browser: the index is one file, which is fetched when the field is first used.
import MiniSearch from './vendor/minisearch.js';

const limit = 12;
const box = document.querySelector('.search');
const field = box.querySelector('input');
const list = box.querySelector('#results');

let loading;
function load() {
  loading ??= fetch(box.dataset.index)
    .then((answer) => {
      if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
      return answer.json();
    })
    .then((pages) => {
      const index = new MiniSearch({
        idField: 'url',
        fields: ['name', 'heading', 'page', 'place', 'text'],
        storeFields: ['label', 'called', 'rank', 'text'],
        // Flags, fields and names of interceptors are found whole and by their parts.
        tokenize: (text) => text.split(/[\s\p{P}|=+<>$`^~]+/u).filter(Boolean),
        searchOptions: { boost: { name: 4, heading: 4, page: 2, place: 0.5 }, prefix: true, fuzzy: (term) => (term.length > 5 ? 0.2 : false), combineWith: 'AND' },
      });
      index.addAll(pages.flatMap(entries));
      return index;
    });
  return loading;
}

// bare makes one name of `--flag`, `flag` and `Flag`.
const bare = (name) => name.toLowerCase().replace(/^-+/, '');

// entries are the sections of a page, and what the rows of its tables name. Of those that are called the same, the page of
// that name comes first, then the reference.
function entries(page) {
  const rank = page.url.includes('/reference/') ? 2 : 1;
  return page.sections.flatMap((section) => {
    const place = [...new Set([page.title, section.heading])];
    return [
      {
        url: `${page.url}#${section.id}`, page: page.title, heading: section.heading, text: section.text,
        label: place.join(' › '), called: bare(section.heading), rank: place.length === 1 ? 3 : rank,
      },
      ...(section.rows ?? []).map((row) => ({
        url: `${page.url}#${row.id}`, name: row.name, place: place.join(' '), text: row.text,
        label: [...place, row.name].join(' › '), called: bare(row.name), rank,
      })),
    ];
  });
}

// find searches. What is called exactly so comes first. A message that somebody pastes has names in it that no page has, so
// many words need not all be found together.
function find(index, words) {
  let found = index.search(words);
  if (found.length === 0 && words.split(/\s+/).length > 3) found = index.search(words, { combineWith: 'OR' });
  const exact = (result) => (result.called === bare(words) ? result.rank : 0);
  return found.sort((a, b) => exact(b) - exact(a));
}

// excerpt is the text around the first word that was found.
function excerpt(text, terms) {
  const lower = text.toLowerCase();
  const at = Math.min(...terms.map((term) => lower.indexOf(term)).filter((i) => i >= 0));
  const from = Number.isFinite(at) ? Math.max(0, text.lastIndexOf(' ', Math.max(0, at - 40)) + 1) : 0;
  return (from > 0 ? '… ' : '') + text.slice(from, from + 120) + (text.length > from + 120 ? ' …' : '');
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

// note is a line that leads nowhere.
function note(text) {
  const line = element('div', text);
  line.setAttribute('role', 'option');
  line.setAttribute('aria-disabled', 'true');
  return line;
}

function show(results) {
  list.replaceChildren(...results.slice(0, limit).map((result, i) => {
    // The focus stays in the field; aria-activedescendant says which result is chosen.
    const item = element('a', '');
    item.id = `result-${i}`;
    item.href = result.id;
    item.tabIndex = -1;
    item.setAttribute('role', 'option');
    item.setAttribute('aria-selected', 'false');
    item.append(element('strong', result.label), element('span', excerpt(result.text, result.terms)));
    return item;
  }));
  if (results.length === 0) list.append(note('Nothing found'));
  open(true);
}

function open(yes) {
  list.hidden = !yes;
  field.setAttribute('aria-expanded', String(yes));
  if (!yes) field.removeAttribute('aria-activedescendant');
}

function move(step) {
  const items = [...list.querySelectorAll('a')];
  if (list.hidden || items.length === 0) return;
  const now = items.findIndex((item) => item.getAttribute('aria-selected') === 'true');
  const next = (now + step + items.length + (now < 0 && step < 0 ? 1 : 0)) % items.length;
  items.forEach((item, i) => item.setAttribute('aria-selected', String(i === next)));
  items[next].scrollIntoView({ block: 'nearest' });
  field.setAttribute('aria-activedescendant', items[next].id);
}

async function search() {
  const words = field.value.trim();
  if (words === '') return open(false);
  try {
    const index = await load();
    if (field.value.trim() === words) show(find(index, words));
  } catch (error) {
    loading = undefined;
    list.replaceChildren(note(`The index could not be loaded: ${error.message}`));
    open(true);
  }
}

field.addEventListener('focus', () => load().catch(() => { loading = undefined; }), { once: true });
field.addEventListener('input', search);
field.addEventListener('keydown', (event) => {
  switch (event.key) {
    case 'ArrowDown': move(1); break;
    case 'ArrowUp': move(-1); break;
    case 'Escape': open(false); break;
    case 'Enter': (list.querySelector('a[aria-selected=true]') ?? list.querySelector('a'))?.click(); break;
    default: return;
  }
  event.preventDefault();
});
document.addEventListener('click', (event) => { if (!box.contains(event.target)) open(false); });
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    field.focus();
  }
});
