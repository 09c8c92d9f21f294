
(function () {
  'use strict';
  var svg = document.currentScript.closest('svg');
  var left = 10, width = 1180, letter = 7.2;
  var boxes = Array.prototype.map.call(svg.querySelectorAll('.box'), function (node) {
    var rect = node.querySelector('rect');
    return {
      node: node, rect: rect, text: node.querySelector('text'),
      name: node.querySelector('title').textContent.split('\n')[0],
      x: +rect.getAttribute('x'), w: +rect.getAttribute('width') + 0.5, y: +rect.getAttribute('y')
    };
  });
  var found = svg.querySelector('.found'), field = svg.querySelector('input');
  function place(box, x, w) {
    var room = Math.floor(w / letter), label = '';
    if (room >= 3) {
      label = box.name.length > room ? box.name.slice(0, room - 2) + '..' : box.name;
    }
    box.rect.setAttribute('x', x);
    box.rect.setAttribute('width', Math.max(w - 0.5, 0.4));
    if (!box.text) {
      if (!label) { return; }
      box.text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
      box.text.setAttribute('y', box.y + 12);
      box.node.appendChild(box.text);
    }
    box.text.setAttribute('x', x + 2);
    box.text.textContent = label;
  }
  function zoom(into) {
    var from = into ? into.x : left, span = into ? into.w : width, top = into ? into.y : 0;
    boxes.forEach(function (box) {
      var above = into && box.y < top;
      var covers = box.x <= from + 0.3 && box.x + box.w >= from + span - 0.3;
      var inside = box.x >= from - 0.3 && box.x + box.w <= from + span + 0.3;
      var shown = above ? covers : inside;
      box.node.style.display = shown ? '' : 'none';
      box.node.classList.toggle('above', !!above);
      if (above && shown) { place(box, left, width); }
      else if (shown) { place(box, left + (box.x - from) * width / span, box.w * width / span); }
    });
  }
  function search(words) {
    var pattern = null, share = 0, end = -1;
    try { pattern = words ? new RegExp(words) : null; } catch (error) { pattern = null; }
    var hits = boxes.filter(function (box) {
      var hit = !!pattern && pattern.test(box.name);
      box.node.classList.toggle('hit', hit);
      return hit;
    });
    hits.sort(function (a, b) { return a.x - b.x || b.w - a.w; }).forEach(function (box) {
      if (box.x + 0.01 >= end) { share += box.w; end = box.x + box.w; }
    });
    found.textContent = pattern ? hits.length + ' boxes match, ' + (100 * share / width).toFixed(2) + ' % in all' : '';
  }
  boxes.forEach(function (box) {
    box.node.addEventListener('click', function () { zoom(box); });
    box.node.addEventListener('keydown', function (event) {
      if (event.key === 'Enter') { zoom(box); }
    });
  });
  svg.querySelector('.page').addEventListener('click', function () { zoom(null); });
  svg.addEventListener('keydown', function (event) {
    if (event.key === 'Escape') { zoom(null); }
  });
  if (field) { field.addEventListener('input', function () { search(field.value); }); }
})();
