#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convoy/base/random.hpp"
#include "convoy/engine/kernels/kernels.hpp"

namespace convoy::engine {
namespace {

constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();

struct Layer {
  int64_t n, k, f;
};

std::vector<Layer> layers() {
  return {{1, 1, 8},     {1, 500, 16},  {3, 2700, 136}, {2, 7, 8},     {3, 129, 24},
          {5, 33, 40},   {7, 784, 16},  {8, 800, 504},  {9, 64, 200},  {16, 300, 96},
          {17, 65, 104}, {24, 257, 32}, {31, 40, 8},    {32, 128, 48}, {33, 100, 16},
          {40, 72, 104}, {64, 500, 16}, {67, 90, 24},   {130, 70, 16}};
}

std::vector<float> random_values(int64_t count, uint64_t id) {
  Stream stream(7, Purpose::test, id);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = stream.uniform() * 2 - 1;
  return values;
}

/// out[i·columns + j] = Σ over r of term(i, j, r), beside Σ|term| to scale the tolerance.
template <class Term>
void expect_sums(const std::vector<float>& got, int64_t rows, int64_t columns, int64_t depth,
                 Term term) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      double magnitude = 1e-3;
      for (int64_t r = 0; r < depth; ++r) {
        const double t = term(i, j, r);
        sum += t;
        magnitude += std::fabs(t);
      }
      ASSERT_NEAR(got[i * columns + j], sum, magnitude * 2e-6) << "at " << i << ", " << j;
    }
  }
}

class LinearKernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { kernels_ = &select_kernels(GetParam()); }
  const Kernels* kernels_ = nullptr;
};

TEST_P(LinearKernels, ForwardIsTheProductWithTheTransposedWeights) {
  for (const Layer& layer : layers()) {
    const int64_t n = layer.n, k = layer.k, f = layer.f;
    SCOPED_TRACE(testing::Message() << n << " x " << k << " -> " << f);
    const auto x = random_values(n * k, 1);
    const auto w = random_values(f * k, 2);
    std::vector<float> y(n * f, kUnset);
    kernels_->linear_forward(n, k, f, 0, f, x.data(), w.data(), nullptr, false, y.data());
    expect_sums(y, n, f, k, [&](int64_t i, int64_t j, int64_t r) {
      return static_cast<double>(x[i * k + r]) * w[j * k + r];
    });
  }
}

TEST_P(LinearKernels, ForwardAddsTheBiasBeforeTheRelu) {
  const int64_t n = 6, k = 30, f = 32;
  const auto x = random_values(n * k, 1);
  const auto w = random_values(f * k, 2);
  const auto bias = random_values(f, 3);
  std::vector<float> plain(n * f, kUnset), biased(n * f, kUnset), relu(n * f, kUnset);
  kernels_->linear_forward(n, k, f, 0, f, x.data(), w.data(), nullptr, false, plain.data());
  kernels_->linear_forward(n, k, f, 0, f, x.data(), w.data(), bias.data(), false, biased.data());
  kernels_->linear_forward(n, k, f, 0, f, x.data(), w.data(), bias.data(), true, relu.data());
  for (int64_t i = 0; i < n * f; ++i) {
    EXPECT_EQ(biased[i], plain[i] + bias[i % f]);
    EXPECT_EQ(relu[i], biased[i] > 0 ? biased[i] : 0.0F);
  }
}

TEST_P(LinearKernels, BackwardDataIsTheProductWithTheWeights) {
  for (const Layer& layer : layers()) {
    const int64_t n = layer.n, k = layer.k, f = layer.f;
    SCOPED_TRACE(testing::Message() << n << " x " << k << " -> " << f);
    const auto dy = random_values(n * f, 1);
    const auto w = random_values(f * k, 2);
    std::vector<float> dx(n * k, kUnset);
    kernels_->linear_backward_data(n, k, f, 0, k, dy.data(), w.data(), dx.data());
    expect_sums(dx, n, k, f, [&](int64_t i, int64_t j, int64_t r) {
      return static_cast<double>(dy[i * f + r]) * w[r * k + j];
    });
  }
}

TEST_P(LinearKernels, BackwardWeightsSumOverTheSamples) {
  for (const Layer& layer : layers()) {
    const int64_t n = layer.n, k = layer.k, f = layer.f;
    SCOPED_TRACE(testing::Message() << n << " x " << k << " -> " << f);
    const auto x = random_values(n * k, 1);
    const auto dy = random_values(n * f, 2);
    std::vector<float> dw(f * k, kUnset);
    kernels_->linear_backward_weights(n, k, f, 0, f, x.data(), dy.data(), dw.data());
    expect_sums(dw, f, k, n, [&](int64_t i, int64_t j, int64_t r) {
      return static_cast<double>(dy[r * f + i]) * x[r * k + j];
    });
  }
}

TEST_P(LinearKernels, BitsDoNotDependOnHowTheOutputIsCut) {
  for (const Layer& layer : layers()) {
    const int64_t n = layer.n, k = layer.k, f = layer.f;
    SCOPED_TRACE(testing::Message() << n << " x " << k << " -> " << f);
    const auto x = random_values(n * k, 1);
    const auto w = random_values(f * k, 2);
    const auto dy = random_values(n * f, 3);
    std::vector<float> y(n * f, kUnset), dx(n * k, kUnset), dw(f * k, kUnset);
    auto y_cut = y, dx_cut = dx, dw_cut = dw;
    kernels_->linear_forward(n, k, f, 0, f, x.data(), w.data(), nullptr, true, y.data());
    kernels_->linear_backward_data(n, k, f, 0, k, dy.data(), w.data(), dx.data());
    kernels_->linear_backward_weights(n, k, f, 0, f, x.data(), dy.data(), dw.data());
    const int64_t a = f / 3 / 8 * 8, b = k * 2 / 5;
    for (const auto& [from, to] : {std::pair{int64_t{0}, a}, std::pair{a, f}}) {
      kernels_->linear_forward(n, k, f, from, to, x.data(), w.data(), nullptr, true, y_cut.data());
      kernels_->linear_backward_weights(n, k, f, from, to, x.data(), dy.data(), dw_cut.data());
    }
    for (const auto& [from, to] : {std::pair{int64_t{0}, b}, std::pair{b, k}}) {
      kernels_->linear_backward_data(n, k, f, from, to, dy.data(), w.data(), dx_cut.data());
    }
    EXPECT_EQ(y, y_cut);
    EXPECT_EQ(dx, dx_cut);
    EXPECT_EQ(dw, dw_cut);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LinearKernels, testing::ValuesIn(usable_kernels()),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace convoy::engine
