#include "convoy/train/safetensors.hpp"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

#include "tests/train/folder.hpp"

namespace convoy::train {
namespace {

using testing::HasSubstr;

class SafetensorsFile : public InFolder {
 protected:
  /// A file with the given header and data.
  std::filesystem::path made(const std::string& header, const std::string& data) const {
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    put(folder_ / "made", bytes + header + data);
    return folder_ / "made";
  }
  std::string refusal(const std::string& header, const std::string& data = "") const {
    const auto path = made(header, data);
    return message_of<InputError>([&] { read_safetensors(path); });
  }
  std::filesystem::path sample() const {
    const NamedTensor weight{"conv.weight", {2, 1, 1, 2}, values_};
    const NamedTensor bias{"bias", {1}, {values_[0]}};
    const NamedTensor none{"none", {0}, {}};
    write_safetensors(folder_ / "sample", std::vector{view(weight), view(bias), view(none)},
                      {{"who", "a \"test\""}, {"convoy.step", "12"}});
    return folder_ / "sample";
  }
  std::vector<float> values_ = {1.5F, -2, 3e-40F, INFINITY};
};

TEST_F(SafetensorsFile, ComesBackAsItWasWritten) {
  const Safetensors file = read_safetensors(sample());
  ASSERT_EQ(file.tensors.size(), 3U);
  EXPECT_EQ(file.tensors[0], (NamedTensor{"conv.weight", {2, 1, 1, 2}, values_}));
  EXPECT_EQ(file.tensors[1].name, "bias");
  EXPECT_EQ(file.tensors[1].values, std::vector<float>{1.5F});
  EXPECT_TRUE(file.tensors[2].values.empty());
  EXPECT_EQ(file.metadata.at("who"), "a \"test\"");
  EXPECT_EQ(file.metadata.at(kChecksumKey).size(), 16U);
}

TEST_F(SafetensorsFile, HasItsDataAlignedToEightBytes) {
  const std::string bytes = content(sample());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(bytes[8], '{');
  EXPECT_EQ(bytes.size(), 8 + length + 20);
  std::vector<float> stored(values_.size());
  std::memcpy(stored.data(), bytes.data() + 8 + length, 16);
  EXPECT_EQ(stored, values_);
}

TEST_F(SafetensorsFile, WithoutTensorsIsFine) {
  write_safetensors(folder_ / "empty", {}, {});
  EXPECT_TRUE(read_safetensors(folder_ / "empty").tensors.empty());
}

TEST_F(SafetensorsFile, CutShortAnywhereIsRefused) {
  const auto path = sample();
  for (auto length = std::filesystem::file_size(path); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    EXPECT_THROW(read_safetensors(path), InputError) << "cut to " << length << " bytes";
  }
}

TEST_F(SafetensorsFile, WithAnyByteChangedIsRefusedOrReadsTheSame) {
  const auto path = sample();
  const Safetensors original = read_safetensors(path);
  const std::string whole = content(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto set = [&](size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  int accepted = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0x01, 0x20, 0x80, 0xFF}) {
      set(at, whole[at] ^ change);
      try {
        EXPECT_EQ(read_safetensors(path).tensors, original.tensors) << "byte " << at;
        ++accepted;
      } catch (const InputError&) {
        continue;
      }
    }
    set(at, whole[at]);
  }
  // Only a change in the name of the checksum's own key or in the padding can go unnoticed.
  EXPECT_LT(accepted, 60);
}

TEST_F(SafetensorsFile, SaysWhichFileAndWhatWasExpected) {
  const std::string whole = content(sample());
  put(folder_ / "cut", whole.substr(0, whole.size() - 4));
  EXPECT_THAT(
      message_of<InputError>([&] { read_safetensors(folder_ / "cut"); }),
      AllOf(HasSubstr("cut: not a whole"), HasSubstr("expected 20 bytes of data, found 16")));
  std::string flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  put(folder_ / "flipped", flipped);
  EXPECT_THAT(message_of<InputError>([&] { read_safetensors(folder_ / "flipped"); }),
              HasSubstr("expected checksum"));
  EXPECT_THAT(message_of<InputError>([&] { read_safetensors(folder_ / "absent"); }),
              HasSubstr("cannot open"));
  EXPECT_THAT(message_of<InputError>([&] { read_safetensors(folder_); }), HasSubstr("not a file"));
}

TEST_F(SafetensorsFile, OfHostileContentIsRefused) {
  const std::string eight(8, 'x');
  EXPECT_THAT(refusal("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal("{nonsense"), HasSubstr("expected a header in JSON"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("expected a header in JSON"));
  EXPECT_THAT(refusal(R"({"a": 1})"), HasSubstr("expected a dtype"));
  EXPECT_THAT(refusal(R"({"__metadata__": {"a": 1}})"), HasSubstr("__metadata__.a to be text"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"),
              HasSubstr("whole numbers"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,0]}})", eight),
              HasSubstr("[begin, end]"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
              HasSubstr("found 8 bytes"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
      HasSubstr("expected the bytes of F32"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[25],"data_offsets":[0,100]}})", eight),
              HasSubstr("expected 100 bytes of data, found 8"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", eight),
              HasSubstr("has type Q4"));
}

TEST_F(SafetensorsFile, WithOverlapsGapsOrTwinsIsRefused) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string eight(8, 'x');
  const std::string twelve(12, 'x');
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", eight),
              HasSubstr("tensor b: expected to begin at byte 4"));
  EXPECT_THAT(
      refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", twelve),
      HasSubstr("tensor b: expected to begin at byte 4"));
  EXPECT_THAT(refusal("{" + a + "," + a + "}", "xxxx"), HasSubstr("twice"));
}

TEST_F(SafetensorsFile, OfOtherTypesBecomesFloats) {
  std::string data;
  const auto add = [&](auto value) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(int64_t{-7});
  add(2.5);
  add(int32_t{9});
  add(uint16_t{0x3FC0});  // 1.5
  add(uint8_t{200});
  const Safetensors file =
      read_safetensors(made(R"({"i":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                            R"("d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                            R"("j":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},)"
                            R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[20,22]},)"
                            R"("u":{"dtype":"U8","shape":[1,1],"data_offsets":[22,23]}}  )",
                            data));
  std::vector<float> values;
  for (const NamedTensor& tensor : file.tensors) values.push_back(tensor.values.at(0));
  EXPECT_EQ(values, (std::vector<float>{-7, 2.5F, 9, 1.5F, 200}));
}

}  // namespace
}  // namespace convoy::train
