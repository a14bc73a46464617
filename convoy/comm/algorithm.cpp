#include "convoy/comm/algorithm.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"

namespace convoy::comm {

const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::direct:
      return "direct";
    case Algorithm::ring:
      return "ring";
    case Algorithm::halving:
      return "halving";
    case Algorithm::colors:
      return "colors";
    case Algorithm::library:
      break;
  }
  return "library";
}

Algorithm parse_algorithm(const std::string& name) {
  for (const Algorithm algorithm : kAlgorithms) {
    if (name == to_string(algorithm)) return algorithm;
  }
  refuse("'{}' is no way to sum; there are direct, ring, halving, colors and library", name);
}

Strips strips_for(const Way& way, int64_t count, int ranks, Edges edges) {
  switch (way.algorithm) {
    case Algorithm::direct:
      return direct_strips(count, ranks, edges);
    case Algorithm::ring:
      return ring_strips(count, ranks, edges);
    case Algorithm::halving:
      return halving_strips(count, ranks, edges);
    case Algorithm::colors:
      return colors_strips(count, ranks, way.colors, edges);
    case Algorithm::library:
      break;
  }
  return library_strips(count, ranks, edges);
}

Task part_reduce(Communicator& c, std::span<float> values, const Strips& strips, int tag,
                 const Way& way) {
  switch (way.algorithm) {
    case Algorithm::direct:
      return direct_part_reduce(c, values, strips, tag);
    case Algorithm::ring:
      return ring_part_reduce(c, values, strips, tag);
    case Algorithm::halving:
      return halving_part_reduce(c, values, strips, tag);
    case Algorithm::colors:
      return colors_part_reduce(c, values, strips, tag, way.colors);
    case Algorithm::library:
      break;
  }
  return library_part_reduce(c, values, strips);
}

Task part_broadcast(Communicator& c, std::span<float> values, const Strips& strips, int tag,
                    const Way& way) {
  switch (way.algorithm) {
    case Algorithm::direct:
      return direct_part_broadcast(c, values, strips, tag);
    case Algorithm::ring:
      return ring_part_broadcast(c, values, strips, tag);
    case Algorithm::halving:
      return halving_part_broadcast(c, values, strips, tag);
    case Algorithm::colors:
      return colors_part_broadcast(c, values, strips, tag, way.colors);
    case Algorithm::library:
      break;
  }
  return library_part_broadcast(c, values, strips);
}

Task allreduce(Communicator& c, std::span<float> values, int tag, const Way& way) {
  switch (way.algorithm) {
    case Algorithm::direct:
      return direct_allreduce(c, values, tag);
    case Algorithm::ring:
      return ring_allreduce(c, values, tag);
    case Algorithm::halving:
      return halving_allreduce(c, values, tag);
    case Algorithm::colors:
      return colors_allreduce(c, values, tag, way.colors);
    case Algorithm::library:
      break;
  }
  return library_allreduce(c, values);
}

Traffic traffic(const Way& way, Form form, int rank, const Strips& strips) {
  switch (way.algorithm) {
    case Algorithm::direct:
      return direct_traffic(form, rank, strips);
    case Algorithm::ring:
      return ring_traffic(form, rank, strips);
    case Algorithm::halving:
      return halving_traffic(form, rank, strips);
    case Algorithm::colors:
      return colors_traffic(form, rank, strips, way.colors);
    case Algorithm::library:
      break;
  }
  return {};
}

Seconds predicted_time(const Way& way, Form form, int ranks, int64_t count, const LinkSpeed& link) {
  switch (way.algorithm) {
    case Algorithm::direct:
      return direct_time(form, ranks, count, link);
    case Algorithm::ring:
      return ring_time(form, ranks, count, link);
    case Algorithm::halving:
      return halving_time(form, ranks, count, link);
    case Algorithm::colors:
      return colors_time(form, ranks, count, link, way.colors);
    case Algorithm::library:
      break;
  }
  return std::min(ring_time(form, ranks, count, link), halving_time(form, ranks, count, link));
}

}  // namespace convoy::comm
