// What htmx does not do: say that the stream is broken, and move by keys.
(function () {
  "use strict";
  function show(broken) {
    var lost = document.getElementById("lost");
    if (!lost || broken === (lost.firstChild !== null)) { return; }
    lost.textContent = "";
    if (broken) {
      var said = document.createElement("p");
      said.className = "notice bad";
      said.textContent = "The dashboard has ended, or does not respond: this page is out of date. Start it again in the terminal.";
      lost.appendChild(said);
    }
  }
  var source = null;
  document.addEventListener("htmx:sseError", function () { show(true); });
  document.addEventListener("htmx:sseOpen", function (event) { source = event.detail.source; show(false); });
  // Leaving the page is not losing the stream.
  window.addEventListener("beforeunload", function () { if (source) { source.close(); } });

  // A part that is replaced keeps what the user did to it: what is open, where it is scrolled,
  // and where the keyboard is.
  var kept = {};
  document.addEventListener("htmx:oobBeforeSwap", function (event) {
    var old = event.detail.target, at = document.activeElement;
    if (!old || !old.id) { return; }
    var all = [old].concat(Array.prototype.slice.call(old.querySelectorAll("*")));
    kept[old.id] = {
      open: all.filter(function (e) { return e.tagName === "DETAILS" && e.open && e.id; }).map(function (e) { return e.id; }),
      scroll: all.filter(function (e) { return e.classList.contains("scroll"); }).map(function (e) { return e.scrollLeft; }),
      focus: !old.contains(at) ? "" : at.id ? "#" + at.id : at.getAttribute("href") ? "a[href=" + JSON.stringify(at.getAttribute("href")) + "]" : ""
    };
  });
  document.addEventListener("htmx:oobAfterSwap", function () {
    Object.keys(kept).forEach(function (id) {
      var now = document.getElementById(id), was = kept[id];
      delete kept[id];
      if (!now) { return; }
      was.open.forEach(function (open) { var e = document.getElementById(open); if (e) { e.open = true; } });
      [now].concat(Array.prototype.slice.call(now.querySelectorAll("*"))).filter(function (e) { return e.classList.contains("scroll"); })
        .forEach(function (e, i) { e.scrollLeft = was.scroll[i] || 0; });
      var focus = was.focus && now.parentNode.querySelector(was.focus);
      if (focus) { focus.focus({ preventScroll: true }); }
    });
  });

  // "/" goes to the filter; j and k go through the rows that are links.
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) { return; }
    var filter = document.querySelector("form.filter input[type=search]");
    if (event.key === "/" && filter) {
      event.preventDefault();
      filter.focus();
      return;
    }
    if (event.key !== "j" && event.key !== "k") { return; }
    var links = Array.prototype.slice.call(document.querySelectorAll("table.list tbody th a, table.list tbody td:first-child a"));
    if (links.length === 0) { return; }
    var at = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    links[Math.max(0, Math.min(links.length - 1, at))].focus();
  });
})();
