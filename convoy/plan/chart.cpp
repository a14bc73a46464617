#include "convoy/plan/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace convoy::plan {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 320;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 36;
constexpr double kBottom = 48;
constexpr std::array<const char*, 6> kColors = {"#2f6fb3", "#d1602b", "#3f8f4f",
                                                "#8a56ac", "#b58b00", "#5f6b75"};

const char* color(size_t i) {
  return kColors[i % kColors.size()];
}

/// The least of 1, 2, 5 times a power of ten that is not less.
double round_up(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0, 10.0}) {
    if (value <= step * power * (1 + 1e-9)) return step * power;
  }
  return 10 * power;
}

std::string number(double value) {
  return fmt::format("{:.4g}", value);
}

/// From values to places on the drawing.
class Axes {
 public:
  explicit Axes(const Chart& chart) : doubling_(chart.doubling) {
    bool any = false;
    for (const Series& s : chart.series) {
      for (const auto& [x, y] : s.points) {
        least_ = any ? std::min(least_, x) : x;
        most_ = any ? std::max(most_, x) : x;
        top_ = std::max(top_, y);
        any = true;
      }
    }
    if (most_ <= least_) most_ = least_ + 1;
    step_ = round_up(top_ / 5);
    top_ = step_ * std::ceil(top_ / step_ - 1e-9);
    if (!(top_ > 0)) top_ = 1;
  }

  double x(double value) const {
    const auto scaled = [&](double v) { return doubling_ ? std::log2(std::max(v, 1e-9)) : v; };
    const double part = (scaled(value) - scaled(least_)) / (scaled(most_) - scaled(least_));
    return kLeft + part * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - value / top_ * (kHeight - kTop - kBottom);
  }

  std::string draw() const {
    std::string svg;
    for (double v = 0; v <= top_ * (1 + 1e-9); v += step_) {
      svg += fmt::format(
          "<line class='grid' x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}'/>"
          "<text class='tick' x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n",
          kLeft, y(v), kWidth - kRight, y(v), kLeft - 8, y(v) + 4, number(v));
    }
    // Whole numbers, where they are small.
    const double step =
        doubling_ ? 0 : std::max(most_ > 2 ? 1.0 : 0.0, round_up((most_ - least_) / 8));
    for (double v = doubling_ ? least_ : std::ceil(least_ / step) * step; v <= most_ * (1 + 1e-9);
         v = doubling_ ? 2 * v : v + step) {
      svg +=
          fmt::format("<text class='tick' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
                      x(v), kHeight - kBottom + 18, number(v));
    }
    return svg;
  }

 private:
  bool doubling_;
  double least_ = 0;
  double most_ = 0;
  double top_ = 0;
  double step_ = 1;
};

std::string frame(const std::string& title, double height, const std::string& inner) {
  return fmt::format(
      "<figure><svg viewBox='0 0 {:.0f} {:.0f}' role='img' aria-label='{}'>\n"
      "<text class='title' x='{:.0f}' y='20'>{}</text>\n{}</svg></figure>\n",
      kWidth, height, escaped(title), kLeft, escaped(title), inner);
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string draw(const Chart& chart) {
  const Axes axes(chart);
  std::string svg = axes.draw();
  svg += fmt::format(
      "<text class='axis' x='{:.0f}' y='{:.0f}' text-anchor='middle'>{}</text>\n"
      "<text class='axis' transform='translate(16 {:.0f}) rotate(-90)' text-anchor='middle'>{}"
      "</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 8, escaped(chart.x), (kTop + kHeight - kBottom) / 2,
      escaped(chart.y));
  if (chart.mark) {
    svg += fmt::format("<line class='mark' x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}'/>\n",
                       axes.x(*chart.mark), kTop, kHeight - kBottom);
  }
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    std::string path;
    std::string dots;
    for (const auto& [x, y] : s.points) {
      path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", axes.x(x), axes.y(y));
      dots += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}: {}, {}</title>"
          "</circle>\n",
          axes.x(x), axes.y(y), color(i), escaped(s.name), number(x), number(y));
    }
    svg += fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='2'{}/>\n{}", path,
                       color(i), s.dashed ? " stroke-dasharray='5 4'" : "", dots);
    svg +=
        fmt::format("<text class='legend' x='{:.0f}' y='{:.0f}' style='fill:{}'>{}</text>\n",
                    kLeft + 12, kTop + 16 + 16 * static_cast<double>(i), color(i), escaped(s.name));
  }
  return frame(chart.title, kHeight, svg);
}

std::string draw_timeline(const std::vector<Span>& spans, const std::string& title) {
  if (spans.empty()) return "";
  constexpr double kRow = 34;
  std::vector<std::string> lanes;
  Seconds begin = spans.front().begin;
  Seconds end = spans.front().end;
  for (const Span& s : spans) {
    if (std::ranges::count(lanes, s.lane) == 0) lanes.push_back(s.lane);
    begin = std::min(begin, s.begin);
    end = std::max(end, s.end);
  }
  const double length = std::max(1e-12, (end - begin).value);
  const auto x = [&](Seconds t) {
    return kLeft + (t - begin).value / length * (kWidth - kLeft - kRight);
  };
  std::string svg;
  for (size_t row = 0; row < lanes.size(); ++row) {
    const double y = kTop + kRow * static_cast<double>(row);
    svg += fmt::format("<text class='tick' x='{:.0f}' y='{:.1f}' text-anchor='end'>{}</text>\n",
                       kLeft - 8, y + 16, escaped(lanes[row]));
    size_t count = 0;
    for (const Span& s : spans) {
      if (s.lane != lanes[row]) continue;
      svg += fmt::format(
          "<rect x='{:.2f}' y='{:.1f}' width='{:.2f}' height='22' fill='{}' fill-opacity='{}'>"
          "<title>{}: {}</title></rect>\n",
          x(s.begin), y, std::max(0.5, x(s.end) - x(s.begin)), color(row),
          count++ % 2 == 0 ? "1" : "0.7", escaped(s.what), to_string(s.end - s.begin));
    }
  }
  const double bottom = kTop + kRow * static_cast<double>(lanes.size());
  const double step = round_up(length / 8);
  for (double t = 0; t <= length * (1 + 1e-9); t += step) {
    svg += fmt::format("<text class='tick' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
                       x(begin + Seconds{t}), bottom + 16, to_string(Seconds{t}));
  }
  return frame(title, bottom + 28, svg);
}

}  // namespace convoy::plan
