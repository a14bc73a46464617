#pragma once
// Drawings for a page that needs nothing else: SVG as text.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/plan/step_model.hpp"

namespace convoy::plan {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool dashed = false;
};

struct Chart {
  std::string title;
  std::string x;  ///< what the axis is
  std::string y;
  std::vector<Series> series;
  bool doubling = false;       ///< the x axis by powers of two
  std::optional<double> mark;  ///< an x that was chosen
};

/// Lines with points, axes from 0 with round numbers, a legend, values as tooltips.
std::string draw(const Chart& chart);
/// What lanes, link and servers do in a step, one row each.
std::string draw_timeline(const std::vector<Span>& spans, const std::string& title);

/// Text as HTML or SVG has it.
std::string escaped(const std::string& text);

}  // namespace convoy::plan
