// SPDX-License-Identifier: MIT
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/torch.hpp>

namespace mnist {

/// Reads a file of MNIST's format (IDX) with bytes in it: a magic number, the sizes, then the values. Returns a tensor
/// of these sizes. Collective: only rank 0 needs the file.
inline torch::Tensor read_idx(const std::string& path, std::size_t dimensions) {
  const std::string bytes = hfcomm::read_file_dist(path);
  const auto number_at = [&](std::size_t place) {
    std::int64_t number = 0;
    for (const char byte : bytes.substr(place, 4)) {
      number = number * 256 + static_cast<unsigned char>(byte);
    }
    return number;
  };
  const std::size_t header = 4 * (1 + dimensions);
  if (bytes.size() < header || number_at(0) != static_cast<std::int64_t>(0x800 + dimensions)) {
    throw std::runtime_error(path + " is no IDX file of bytes in " + std::to_string(dimensions) + " dimensions");
  }
  std::vector<std::int64_t> sizes;
  std::int64_t values = 1;
  for (std::size_t place = 4; place < header; place += 4) {
    sizes.push_back(number_at(place));
    // A product of so many bytes cannot be there, and could overflow.
    values = sizes.back() > (1 << 30) ? -1 : values * sizes.back();
    if (values < 0 || values > static_cast<std::int64_t>(bytes.size() - header)) {
      throw std::runtime_error(path + " is cut off");
    }
  }
  const auto data = torch::from_blob(const_cast<char*>(bytes.data()) + header, sizes, torch::kUInt8);
  return data.clone();
}

/// Images of handwritten digits and their labels, as torch::data::datasets::MNIST has them, of any number and size.
class digits : public torch::data::datasets::Dataset<digits> {
 public:
  /// Reads PART-images-idx3-ubyte and PART-labels-idx1-ubyte, where PART is "train" or "t10k". Collective.
  digits(const std::string& folder, const std::string& part)
      : images_(read_idx(folder + "/" + part + "-images-idx3-ubyte", 3).unsqueeze(1).to(torch::kFloat32).div_(255)),
        labels_(read_idx(folder + "/" + part + "-labels-idx1-ubyte", 1).to(torch::kInt64)) {
    if (images_.size(0) != labels_.size(0) || images_.size(0) == 0 || rows() < 4 || columns() < 4) {
      throw std::runtime_error(folder + " has no image of 4x4 pixels or more for each label of " + part);
    }
    if (labels_.max().item<std::int64_t>() > 9) {
      throw std::runtime_error(folder + " has labels above 9 in " + part);
    }
  }

  /// Returns one image of [1, rows, columns] and its label.
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {images_[row], labels_[row]};
  }
  torch::optional<std::size_t> size() const override { return count(); }

  std::size_t count() const { return static_cast<std::size_t>(images_.size(0)); }
  std::int64_t rows() const { return images_.size(2); }
  std::int64_t columns() const { return images_.size(3); }
  const torch::Tensor& labels() const { return labels_; }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

}  // namespace mnist
