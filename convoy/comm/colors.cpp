// Multi-color trees (Kumar17): the values are cut into k parts, the colors. Each color has its own
// k-ary tree, turned so that a rank is interior in at most one of them (for k = 2 always, for k = 4
// where N mod 4 is 0 or 1, for k = N too). Chunks of a color go up the tree, summed on the way, and
// come down again; several are under way at once.
//
//   N = 4, k = 2      color 0: 0 ← {1, 2}, 1 ← {3}      color 1: 2 ← {3, 0}, 3 ← {1}
//
// With k = N every rank is the root of one color and a leaf of all others: two hops, and a rank
// sends 2S(N − 1)/N.

#include <algorithm>
#include <deque>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::comm {
namespace {

/// Chunks on their way from or to one rank: enough to keep the link busy while one is added.
constexpr int64_t kWindow = 4;
/// Chunks for each level of a tree that a rank may have sent up and not yet got back: without a
/// limit, the connections that TCP favours run ahead, and at the end the others have the links to
/// themselves and leave most idle.
constexpr int64_t kAhead = 4;

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
  int64_t ahead;          // chunks that may be sent up before one comes down
  int64_t summed = 0;     // chunks that are the sum over this rank's subtree
  int64_t came_down = 0;  // chunks that are the sum over all ranks
  std::vector<std::unique_ptr<Request>> up_sends = {};  // by chunk; none where nothing was sent

  int64_t chunks() const { return chunks_of(static_cast<int64_t>(values.size()), chunk); }
  std::span<float> piece(int64_t i) const {
    const auto begin = static_cast<size_t>(i * chunk);
    return values.subspan(begin, std::min(static_cast<size_t>(chunk), values.size() - begin));
  }
  /// What is received replaces what was sent up, so that must have left.
  bool may_come_down(int64_t i) const {
    if (summed <= i) return false;
    return up_sends.empty() || up_sends[static_cast<size_t>(i)]->done();
  }
};

/// Chunks of one child that are to be added, in turn.
struct Arriving {
  AlignedBuffer buffers[kWindow];
  std::unique_ptr<Request> requests[kWindow];
};

Task until_done(Request& request) {
  if (!request.done()) {
    co_await Until([&request] { return request.done(); }, request.describe());
  }
}

Task go_up(Color& color) {
  const int64_t chunks = color.chunks();
  std::vector<Arriving> arriving(color.place.children.size());
  for (Arriving& from_child : arriving) {
    for (int64_t i = 0; i < std::min(kWindow, chunks); ++i) {
      from_child.buffers[i] = AlignedBuffer::of_floats(static_cast<int64_t>(color.piece(0).size()));
    }
  }
  int64_t asked = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    for (; asked < std::min(i + kWindow, chunks); ++asked) {
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
      const auto may_send = [&color, i] { return i < color.came_down + color.ahead; };
      if (!may_send()) co_await Until(may_send, "earlier chunks to come down");
      color.up_sends.push_back(
          color.c.send(color.place.parent, color.up_tag, bytes_of(color.piece(i))));
    }
    ++color.summed;
    if (i >= kWindow && color.place.parent >= 0) {
      co_await until_done(*color.up_sends[static_cast<size_t>(i - kWindow)]);
    }
  }
  for (const auto& sent : color.up_sends) co_await until_done(*sent);
}

Task go_down(Color& color) {
  const int64_t chunks = color.chunks();
  const bool root = color.place.parent < 0;
  std::deque<std::unique_ptr<Request>> arriving;
  std::deque<Requests> sends;
  int64_t asked = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    if (!color.may_come_down(i)) {
      co_await Until([&color, i] { return color.may_come_down(i); }, "a chunk's sum");
    }
    for (; !root && asked < std::min(i + kWindow, chunks) && color.may_come_down(asked); ++asked) {
      arriving.push_back(
          color.c.receive(color.place.parent, color.down_tag, bytes_of(color.piece(asked))));
    }
    if (!root) {
      co_await std::move(arriving.front());
      arriving.pop_front();
    }
    ++color.came_down;
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

int root_of(int color, int ranks, int colors) {
  return color * ranks / colors;
}

/// One rank's work on all colors.
std::deque<Color> work_of(Communicator& c, std::span<float> values, const Strips& strips, int tag,
                          const Colors& options) {
  const int colors = usable_colors(c.size(), options);
  std::deque<Color> all;
  int64_t covered = 0;
  for (int i = 0; i < colors; ++i) {
    // Each rank begins with another color: all at once to one root would leave the others idle.
    const int color = (i + c.rank() * colors / c.size() + 1) % colors;
    const Strip& s = strips[static_cast<size_t>(root_of(color, c.size(), colors))];
    covered += s.size();
    all.push_back({c, at(values, s), options.chunk, tree_place(c.rank(), c.size(), color, colors),
                   tag * kTags + 2 * color, tag * kTags + 2 * color + 1,
                   kAhead * depth(c.size(), colors)});
  }
  check(covered == static_cast<int64_t>(values.size()), "only roots of trees own strips");
  return all;
}

}  // namespace

TreePlace tree_place(int rank, int ranks, int color, int colors) {
  const int turn = root_of(color, ranks, colors);
  const int v = (rank - turn + ranks) % ranks;
  const auto back = [&](int place) { return (place + turn) % ranks; };
  TreePlace place;
  if (v > 0) place.parent = back((v - 1) / colors);
  for (int child = v * colors + 1; child <= v * colors + colors && child < ranks; ++child) {
    place.children.push_back(back(child));
  }
  return place;
}

Strips colors_strips(int64_t count, int ranks, const Colors& options, Edges edges) {
  const int colors = usable_colors(ranks, options);
  const Strips parts = even_strips(count, colors, edges);
  Strips strips;
  for (int rank = 0, color = 0; rank < ranks; ++rank) {
    const bool root = color < colors && rank == root_of(color, ranks, colors);
    const int64_t end = rank == 0 ? 0 : strips.back().end;
    strips.push_back(root ? parts[static_cast<size_t>(color++)] : Strip{end, end});
  }
  return strips;
}

Task colors_part_reduce(Communicator& c, std::span<float> values, Strips strips, int tag,
                        Colors options) {
  std::deque<Color> work = work_of(c, values, strips, tag, options);
  Tasks tasks;
  for (Color& color : work) {
    color.ahead = color.chunks();  // nothing comes down
    tasks.add(go_up(color));
  }
  co_await std::move(tasks);
}

Task colors_part_broadcast(Communicator& c, std::span<float> values, Strips strips, int tag,
                           Colors options) {
  std::deque<Color> work = work_of(c, values, strips, tag, options);
  Tasks tasks;
  for (Color& color : work) {
    color.summed = color.chunks();
    tasks.add(go_down(color));
  }
  co_await std::move(tasks);
}

Task colors_allreduce(Communicator& c, std::span<float> values, int tag, Colors options) {
  const Strips strips = colors_strips(static_cast<int64_t>(values.size()), c.size(), options);
  std::deque<Color> work = work_of(c, values, strips, tag, options);
  Tasks tasks;
  for (Color& color : work) {
    tasks.add(go_up(color));
    tasks.add(go_down(color));
  }
  co_await std::move(tasks);
}

Traffic colors_traffic(Form form, int rank, const Strips& strips, const Colors& options) {
  const auto ranks = static_cast<int>(strips.size());
  const int colors = usable_colors(ranks, options);
  Traffic t;
  for (int color = 0; color < colors; ++color) {
    const int64_t values = strips[static_cast<size_t>(root_of(color, ranks, colors))].size();
    const TreePlace place = tree_place(rank, ranks, color, colors);
    int64_t links = 0;
    if (form != Form::part_broadcast && place.parent >= 0) ++links;
    if (form != Form::part_reduce) links += static_cast<int64_t>(place.children.size());
    t += {links * chunks_of(values, options.chunk), Bytes{4 * links * values}};
  }
  return t;
}

Seconds colors_time(Form form, int ranks, int64_t count, const LinkSpeed& link,
                    const Colors& options) {
  if (ranks < 2) return {0};
  const int colors = usable_colors(ranks, options);
  const Strips strips = colors_strips(count, ranks, options);
  Traffic most;
  for (int rank = 0; rank < ranks; ++rank) {
    const Traffic sent = colors_traffic(form, rank, strips, options);
    most.messages = std::max(most.messages, sent.messages);
    most.bytes = std::max(most.bytes, sent.bytes);
  }
  // What a rank receives on the way up it adds: as much as it sends on the way down.
  const double added = form == Form::part_broadcast ? 0
                                                    : static_cast<double>(most.bytes.value) /
                                                          (form == Form::allreduce ? 2 : 1);
  const double chunk =
      4.0 * static_cast<double>(std::min(options.chunk, (count + colors - 1) / colors));
  const double ways = form == Form::allreduce ? 2 : 1;
  const int levels = depth(ranks, colors);
  // While the first chunk climbs from the second level on, the upper links are idle.
  const double idle =
      (levels - 1) * std::min(colors, ranks - 1) * link.transfer(chunk, chunk).value;
  return {ways * (levels * link.latency.value + idle) +
          static_cast<double>(most.messages) * link.per_message.value +
          link.transfer(static_cast<double>(most.bytes.value), chunk).value +
          added * link.add_per_byte.value};
}

}  // namespace convoy::comm
