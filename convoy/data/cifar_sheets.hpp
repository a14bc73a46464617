#pragma once
// CIFAR-10 is also handed out as PNG "sheets": one sheet per batch file, one image per row, its
// 32×32 pixels laid out one after the other (1024 pixels wide), labels beside them in JSON. This
// turns such a folder into the official binary files, byte for byte.

#include <filesystem>

namespace convoy::data {

/// Reads data_batch_1.png … data_batch_5.png, test_batch.png, train_lables.json and
/// test_lables.json (spelled so by their publisher) from `from` and writes data_batch_1.bin …
/// data_batch_5.bin and test_batch.bin to `to`, which is made if need be. Sheets may have any
/// number of rows; the training labels run on over the five sheets. Throws InputError naming the
/// file when a sheet is missing, damaged or of another format, or labels and rows disagree.
void import_cifar_sheets(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace convoy::data
