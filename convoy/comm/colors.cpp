// Multi-color trees (Kumar17): the values are cut into k parts, the colors. Each color has its own
// k-ary tree, turned so that a rank is interior in at most one of them (for k = 2 always, for k = 4
// where N mod 4 is 0 or 1). Chunks of a color go up the tree, summed on the way, and come down
// again; several are under way at once.
//
//   N = 4, k = 2      color 0: 0 ← {1, 2}, 1 ← {3}      color 1: 2 ← {3, 0}, 3 ← {1}

#include <algorithm>
#include <deque>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::comm {
namespace {

/// Chunks on their way from or to one rank: enough to keep the link busy while one is added.
constexpr int64_t kWindow = 4;

int64_t chunks_of(int64_t count, int64_t chunk) {
  return (count + chunk - 1) / chunk;
}

/// One rank's work on one color.
struct Color {
  Communicator& c;
  std::span<float> values;
  int64_t chunk;
  TreePlace place;
  int up_tag, down_tag;
  int64_t summed = 0;  // chunks that are the sum over this rank's subtree
  std::deque<std::unique_ptr<Request>> up_sends = {};  // of chunks that have not come down

  int64_t chunks() const { return chunks_of(static_cast<int64_t>(values.size()), chunk); }
  std::span<float> piece(int64_t i) const {
    const auto begin = static_cast<size_t>(i * chunk);
    return values.subspan(begin, std::min(static_cast<size_t>(chunk), values.size() - begin));
  }
};

/// Chunks of one child that are to be added, in turn.
struct Arriving {
  AlignedBuffer buffers[kWindow];
  std::unique_ptr<Request> requests[kWindow];
};

Task go_up(Color& color) {
  std::vector<Arriving> arriving(color.place.children.size());
  for (Arriving& from_child : arriving) {
    for (AlignedBuffer& buffer : from_child.buffers) {
      buffer = AlignedBuffer::of_floats(
          std::min(color.chunk, static_cast<int64_t>(color.values.size())));
    }
  }
  int64_t asked = 0;
  for (int64_t i = 0; i < color.chunks(); ++i) {
    for (; asked < std::min(i + kWindow, color.chunks()); ++asked) {
      for (size_t child = 0; child < arriving.size(); ++child) {
        const std::span<float> to =
            arriving[child].buffers[asked % kWindow].floats().first(color.piece(asked).size());
        arriving[child].requests[asked % kWindow] =
            color.c.receive(color.place.children[child], color.up_tag, bytes_of(to));
      }
    }
    for (Arriving& from_child : arriving) {
      co_await std::move(from_child.requests[i % kWindow]);
      add_to(from_child.buffers[i % kWindow].floats().first(color.piece(i).size()), color.piece(i));
    }
    if (color.place.parent >= 0) {
      color.up_sends.push_back(
          color.c.send(color.place.parent, color.up_tag, bytes_of(color.piece(i))));
    }
    ++color.summed;
    // The way down takes them away.
    co_await Until([&color] { return color.up_sends.size() <= 2 * kWindow; }, "earlier chunks");
  }
}

Task go_down(Color& color) {
  std::deque<Requests> sends;
  for (int64_t i = 0; i < color.chunks(); ++i) {
    co_await Until([&color, i] { return color.summed > i; }, "a chunk's sum");
    if (color.place.parent >= 0) {
      // What is received replaces what was sent up.
      std::unique_ptr<Request> sent = std::move(color.up_sends.front());
      color.up_sends.pop_front();
      co_await std::move(sent);
      co_await color.c.receive(color.place.parent, color.down_tag, bytes_of(color.piece(i)));
    }
    Requests to_children;
    for (const int child : color.place.children) {
      to_children.add(color.c.send(child, color.down_tag, bytes_of(color.piece(i))));
    }
    sends.push_back(std::move(to_children));
    if (static_cast<int64_t>(sends.size()) > kWindow) {
      co_await std::move(sends.front());
      sends.pop_front();
    }
  }
  for (; !sends.empty(); sends.pop_front()) co_await std::move(sends.front());
}

int depth(int ranks, int arity) {
  int levels = 0;
  for (int64_t reached = 1, width = 1; reached < ranks; reached += width) {
    width *= arity;
    ++levels;
  }
  return levels;
}

int usable_colors(int ranks, const Colors& options) {
  return std::clamp(options.colors, 1, std::max(1, std::min(ranks, kTags / 2)));
}

}  // namespace

TreePlace tree_place(int rank, int ranks, int color, int colors) {
  const int turn = color * ranks / colors;
  const int v = (rank - turn + ranks) % ranks;
  const auto back = [&](int place) { return (place + turn) % ranks; };
  TreePlace place;
  if (v > 0) place.parent = back((v - 1) / colors);
  for (int child = v * colors + 1; child <= v * colors + colors && child < ranks; ++child) {
    place.children.push_back(back(child));
  }
  return place;
}

Task colors_allreduce(Communicator& c, std::span<float> values, int tag, const Colors& options) {
  const int colors = usable_colors(c.size(), options);
  std::deque<Color> parts;
  Tasks tasks;
  for (int color = 0; color < colors; ++color) {
    const Strip s = strip_of(static_cast<int64_t>(values.size()), color, colors);
    parts.push_back({c, values.subspan(static_cast<size_t>(s.begin), static_cast<size_t>(s.size())),
                     options.chunk, tree_place(c.rank(), c.size(), color, colors),
                     tag * kTags + 2 * color, tag * kTags + 2 * color + 1});
    tasks.add(go_up(parts.back()));
    tasks.add(go_down(parts.back()));
  }
  co_await std::move(tasks);
}

Traffic colors_traffic(int rank, int ranks, int64_t count, const Colors& options) {
  const int colors = usable_colors(ranks, options);
  Traffic t;
  for (int color = 0; color < colors; ++color) {
    const int64_t values = strip_of(count, color, colors).size();
    const TreePlace place = tree_place(rank, ranks, color, colors);
    const auto links = static_cast<int64_t>(place.children.size()) + (place.parent >= 0 ? 1 : 0);
    t.messages += links * chunks_of(values, options.chunk);
    t.bytes += Bytes{4 * links * values};
  }
  return t;
}

Seconds colors_time(int ranks, int64_t count, const LinkSpeed& link, const Colors& options) {
  if (ranks < 2) return {0};
  const int colors = usable_colors(ranks, options);
  const double bytes = 4.0 * static_cast<double>(count);
  const double chunk =
      4.0 * static_cast<double>(std::min(options.chunk, (count + colors - 1) / colors));
  const double hops = 2.0 * depth(ranks, colors);
  return {bytes * (2 * link.per_byte.value + link.add_per_byte.value) +
          hops * (link.latency.value + colors * chunk * link.per_byte.value)};
}

}  // namespace convoy::comm
