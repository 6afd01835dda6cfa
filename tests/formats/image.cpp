#include "etude/formats/image.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace formats_image_test {

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

/// A file with an image of 5 x 3 pixels, and the pixels that Pillow 13 reads from it with convert("RGB") and
/// convert("L"), row by row.
struct Sample {
  const char *title, *file, *rgb, *grey;
};

// Pillow wrote these files, except the ones with 16 bits, a gamma or interlacing, which it can't write.
const Sample samples[] = {
    {"RGB PNG",
     "89504e470d0a1a0a0000000d4948445200000005000000030802000000d45452af0000003b49444154789c01"
     "3000cfff00f8c2becf931aed15f5d3ef2d059d9f013c36ec31f8dbe5f206d2e7b9ba320c0008950e0f160a90"
     "d0181807290b553b5ebb14fb1507ebac0000000049454e44ae426082",
     "f8c2becf931aed15f5d3ef2d059d9f3c36ec6d2ec75220cd240786de399208950e0f160a90d0181807290b55"
     "3b",
     "d2976fd1704d52431e745b13a8103c"},
    {"palette PNG with transparency",
     "89504e470d0a1a0a0000000d494844520000000500000003020300000026582d6b0000000c504c5445b1bc08"
     "1d7364e3846b6eaa96ab115e4a0000000474524e530080ff075fe615cb0000001149444154789c63f8c4c0a0"
     "c2c078ed15000ae602d869d1f9f90000000049454e44ae426082",
     "6eaa966eaa96b1bc08e3846bb1bc08b1bc08e3846b1d7364b1bc08b1bc086eaa961d73641d7364e3846b6eaa"
     "96",
     "9696a49ea4a49e58a4a49658589e96"},
    {"PNG of 1 bit",
     "89504e470d0a1a0a0000000d4948445200000005000000030100000000734df8550000000e49444154789c63"
     "f06078c1f40100051a0223cf05670f0000000049454e44ae426082",
     "000000ffffff000000000000ffffffffffffffffffffffff000000ffffffffffffffffff000000ffffffffff"
     "ff",
     "00ff0000ffffffff00ffffff00ffff"},
    {"RGBA PNG",
     "89504e470d0a1a0a0000000d49484452000000050000000308060000005b36c5f80000004a49444154789c01"
     "3f00c0ff01a06e44c9affa7d7f095d29093c6b1d5501f877000288c8f7e9be31c696e3fa05f92d6a4b4ade7f"
     "e35a00b9d2b0134cb134f96d5ea2f1c505644c32f7a623a3161e43108f392d0000000049454e44ae426082",
     "a06e444f68c158c5ea94300795287e28363b0d99873bbfefc19a5273a761b9d2b04cb1346d5ea2c5056432f7"
     "a6",
     "786ba94952326d9d9d8fc7856a49b3"},
    {"PNG of grey and alpha",
     "89504e470d0a1a0a0000000d4948445200000005000000030804000000f13f0d730000002a49444154789c63"
     "f8959418907e9083db5697c1fd896cd492959cb667a7323e17daa393dd3473c7999b00d2960e0f9ba452bf00"
     "00000049454e44ae426082",
     "fafafa6161616767670808083d3d3d4747471d1d1da4a4a4090909cdcdcde7e7e7a3a3a30e0e0ea7a7a77373"
     "73",
     "fa6167083d471da409cde7a30ea773"},
    {"RGB PNG of 16 bits",
     "89504e470d0a1a0a0000000d494844520000000500000003100200000084c48eec000000684944415478da01"
     "5d00a2ff009bb0a14d3f774c547cc0bde34ae1b8dfa75d37fd6349d473d7b9a85b013500aecb39a1d1f0e9e3"
     "6db6f4fcc23a535ae0e462741a3197ead98aa80964d800e6f57acc62bc2576366bb2cccc954abfa0f3df0225"
     "fb467e862d8fd265f25f80339a1fd537f60000000049454e44ae426082",
     "9ba13f4c7cbd4ab8a73763d4d7a801ae39d1e96df4c253e0621a97d9a864e67a622536b2cc4aa0df2546868f"
     "65",
     "94759563a36da1843eaf983f7b6088"},
    {"PNG with a gamma",
     "89504e470d0a1a0a0000000d4948445200000005000000030802000000d45452af0000000467414d41000186"
     "a031e8965f0000003b4944415478da013000cfff00f8c2becf931aed15f5d3ef2d059d9f003c36ec6d2ec752"
     "20cd240786de39920008950e0f160a90d0181807290b553b246b12aa7233b0870000000049454e44ae426082",
     "f8c2becf931aed15f5d3ef2d059d9f3c36ec6d2ec75220cd240786de399208950e0f160a90d0181807290b55"
     "3b",
     "d2976fd1704d52431e745b13a8103c"},
    {"interlaced PNG",
     "89504e470d0a1a0a0000000d4948445200000005000000030802000001a35362390000003f4944415478da01"
     "3400cbff00f8c2be00059d9f00ed15f50008950e90d0180b553b00cf931ad3ef2d000f160a180729003c36ec"
     "6d2ec75220cd240786de3992fd8a12aa9b9124b50000000049454e44ae426082",
     "f8c2becf931aed15f5d3ef2d059d9f3c36ec6d2ec75220cd240786de399208950e0f160a90d0181807290b55"
     "3b",
     "d2976fd1704d52431e745b13a8103c"},
    {"JPEG",
     "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b"
     "0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e3334"
     "32ffdb0043010909090c0b0c180d0d1832211c21323232323232323232323232323232323232323232323232"
     "3232323232323232323232323232323232323232323232323232ffc000110800030005030122000211010311"
     "01ffc4001500010100000000000000000000000000000003ffc4001910010002030000000000000000000000"
     "00000104031333ffc4001501010100000000000000000000000000000405ffc4001e11000004070000000000"
     "000000000000000001020304051132347191ffda000c03010002110311003f008daaf8b6f3800c4c3334b0b8"
     "42ac9f01ad0fffd9",
     "17b42927a625498a2269711e8a5a1c23ba4f33ac4b5591497577459661422ebb903ead8c609289807885a060"
     "82",
     "75716b6561817d77716d8c88827c77"},
    {"progressive JPEG",
     "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b"
     "0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e3334"
     "32ffdb0043010909090c0b0c180d0d1832211c21323232323232323232323232323232323232323232323232"
     "3232323232323232323232323232323232323232323232323232ffc200110800030005030111000211010311"
     "01ffc40014000100000000000000000000000000000002ffc400150101010000000000000000000000000000"
     "0102ffda000c0301000210031000000114ff00ffc400161001010100000000000000000000000000020111ff"
     "da0008010100010502466fffc400161100030000000000000000000000000000000533ffda0008010301013f"
     "015913ffc4001811000203000000000000000000000000000002030451ffda0008010201013f015af161ffc4"
     "001510010100000000000000000000000000000031ffda0008010100063f028fffc400141001000000000000"
     "00000000000000000000ffda0008010100013f2143ffda000c030100020003000000103fffc4001511010100"
     "000000000000000000000000000001ffda0008010301013f10b3ffc400161100030000000000000000000000"
     "000000001131ffda0008010201013f104a4fffc4001510010100000000000000000000000000000041ffda00"
     "08010100013f10867fffd9",
     "06c40022af004f8e007b6e009a570011c3532dae545b8c54876b53a555541cc29a38ad9a668b9b926b9aaf54"
     "9a",
     "75716b6561817d77716d8c88827c77"},
    {"grey JPEG",
     "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b"
     "0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e3334"
     "32ffc0000b080003000501011100ffc40014000100000000000000000000000000000002ffc4001b10000104"
     "030000000000000000000000000300010207162241ffda0008010100003f0035b0058dc746e2ffd9",
     "0000002424245050507a7a7a9b9b9b0a0a0a2f2f2f5b5b5b848484a5a5a51313133838386464648e8e8eafaf"
     "af",
     "0024507a9b0a2f5b84a51338648eaf"},
    {"CMYK JPEG",
     "ffd8ffee000e41646f626500640000000000ffdb004300080606070605080707070909080a0c140d0c0b0b0c"
     "1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ff"
     "c000140800030005044311004d11005911004b1100ffc4001700000301000000000000000000000000000102"
     "0407ffc40024100000030509000000000000000000000000010203040616410715212235558191d1ffda000e"
     "0443004d0059004b00003f003692ddacc8ace7515411a217012758937879ecbc1a0448b55e4789d47fffd9",
     "ff38fec94de99361d56570c14577aef037afba4b9f865e925b6d843c7477e43658b04a507d5c49526b423471"
     "3b",
     "8a847d766e7c76706a646e69645f59"},
};

/// uint8 [C, 3, 5], made from bytes in the order [3, 5, C].
torch::Tensor pixels_of(const char* hex, std::int64_t channels) {
  auto bytes = bytes_of(hex);
  return torch::from_blob(bytes.data(), {3, 5, channels}, torch::kByte).permute({2, 0, 1}).clone();
}

std::string fault_of(std::string_view file) {
  return toy::fault_of<etude::DataError>(
      [&] { etude::decode_image(std::as_bytes(std::span(file.data(), file.size()))); });
}

TEST_CASE("PNG and JPEG files of all kinds have Pillow's pixels, as RGB and as grey") {
  const toy::Folder folder;
  for (const auto& sample : samples) {
    CAPTURE(sample.title);
    toy::write_text(folder / "image", bytes_of(sample.file));
    const auto rgb = etude::read_image(folder / "image");
    const auto grey = etude::read_image(folder / "image", etude::ImageChannels::grey);
    CHECK((rgb.scalar_type() == torch::kByte));
    CHECK(rgb.is_contiguous());
    CHECK(grey.is_contiguous());
    CHECK(torch::equal(rgb, pixels_of(sample.rgb, 3)));
    CHECK(torch::equal(grey, pixels_of(sample.grey, 1)));
  }
}

TEST_CASE("a grey PNG of 16 bits keeps its upper 8 bits") {
  const auto file = bytes_of(
      "89504e470d0a1a0a0000000d49484452000000050000000310000000002ecd46670000002a4944415478da63"
      "38fab5b29cfd88a3e296df0caddcf1e71cde893bcd3ecbb052ac55e75dc9db5e532e00fe060ebeeb967eb800"
      "00000049454e44ae426082");
  const auto pixels = etude::decode_image(std::as_bytes(std::span(file)), etude::ImageChannels::grey);
  const std::array<std::int64_t, 5> first_row = {197, 121, 7, 65, 180};
  for (std::size_t x = 0; x < first_row.size(); ++x)
    CHECK(pixels[0][0][static_cast<std::int64_t>(x)].item<std::int64_t>() == first_row[x]);
}

TEST_CASE("a file cut off anywhere is refused, and never read beyond its end") {
  for (const auto& sample : samples) {
    CAPTURE(sample.title);
    const auto file = bytes_of(sample.file);
    for (std::size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size);
      // A copy of exactly this size, so that a sanitizer notices reads past its end.
      const std::vector<char> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK(fault_of({part.data(), part.size()}) != "nothing was thrown");
    }
  }
}

TEST_CASE("a changed byte in the pixels of a PNG is noticed") {
  auto file = bytes_of(samples[0].file);
  file[file.size() - 20] ^= 1;
  CHECK(toy::contains(fault_of(file), "its PNG is damaged: "));
}

TEST_CASE("bytes between the markers of a JPEG, which cameras write, don't matter") {
  auto file = bytes_of(samples[8].file);
  REQUIRE(std::string_view(samples[8].title) == "JPEG");
  file.insert(file.find("\xff\xc0"), 3, '\0');
  CHECK(torch::equal(etude::decode_image(std::as_bytes(std::span(file))), pixels_of(samples[8].rgb, 3)));
}

TEST_CASE("the errors name the file and its fault") {
  const toy::Folder folder;
  const auto fault_of_file = [&](const std::string& name, std::string_view content) {
    toy::write_text(folder / name, content);
    auto fault = toy::fault_of<etude::DataError>([&] { etude::read_image(folder / name); });
    CHECK(fault.starts_with((folder / name).string() + ": "));
    return fault.substr((folder / name).string().size() + 2);
  };
  CHECK(fault_of_file("text.png", "text") == "it isn't an image: must be a PNG or JPEG file");
  CHECK(fault_of_file("empty.jpg", "") == "it isn't an image: must be a PNG or JPEG file");
  const auto png = bytes_of(samples[0].file), jpeg = bytes_of(samples[8].file);
  CHECK(fault_of_file("half.png", png.substr(0, png.size() - 5)) == "its PNG is damaged: it is truncated");
  CHECK(fault_of_file("half.jpg", jpeg.substr(0, jpeg.size() - 5)) ==
        "its JPEG is damaged: Premature end of JPEG file");
  CHECK(toy::contains(toy::fault_of<etude::DataError>([&] { etude::read_image(folder / "none.png"); }),
                      "none.png can't be read: No such file or directory"));
}

TEST_CASE("a header that promises more pixels than allowed, or than its bytes can hold, is refused") {
  // The size is in the frame header of a JPEG: marker, length, precision, height, width.
  const auto sized = [](std::string_view size) {
    auto file = bytes_of(samples[8].file);
    const auto frame = file.find("\xff\xc0");
    REQUIRE(frame != file.npos);
    return file.replace(frame + 5, 4, size);
  };
  using namespace std::string_view_literals;
  CHECK(fault_of(sized("\xff\x00\xff\x00"sv)) ==
        "it is 65280 x 65280 pixels: must be at most 178956970 in all");
  CHECK(fault_of(sized("\x10\x00\x10\x00"sv)) == "it is truncated: 316 bytes can't hold 4096 x 4096 pixels");
}

}  // namespace formats_image_test
