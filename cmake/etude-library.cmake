# The libraries are compiled from src/ in the build that links them, with its LibTorch and flags, and only if something links them.
set(etude_src ${CMAKE_CURRENT_LIST_DIR}/src)
if(NOT EXISTS ${etude_src})
  cmake_path(SET etude_src NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../src)
endif()
option(ETUDE_UNITY "Compile several files at once; OFF to change one file again and again" ON)
set(etude_unit_size 140000)
# Nearly everything that g++ reads from LibTorch stays in use, so collecting garbage below 2 GB (here in kB) only costs time.
set(etude_no_collection $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=2000000>)

# etude_sources(RESULT PATTERN...): the files of src/ whose path matches one of the regular expressions.
function(etude_sources result)
  file(GLOB_RECURSE files RELATIVE ${etude_src} CONFIGURE_DEPENDS ${etude_src}/*.cpp)
  list(JOIN ARGN "|" pattern)
  list(FILTER files INCLUDE REGEX "^(${pattern})\\.cpp$")
  list(TRANSFORM files PREPEND ${etude_src}/)
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# etude_add_library(etude_NAME SOURCE...): etude::NAME, whose sources are compiled together in units of about etude_unit_size bytes.
function(etude_add_library target)
  string(REGEX REPLACE "^etude_" "" name ${target})
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${ARGN})
  add_library(etude::${name} ALIAS ${target})
  # Otherwise g++ calls a shared library's internal functions through a table.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition> ${etude_no_collection})
  if(NOT target STREQUAL "etude_kernels")
    # -O3 takes longer to compile; the kernels loop over the elements of tensors, which it vectorises.
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD ${ETUDE_UNITY} UNITY_BUILD_MODE GROUP)
  target_link_libraries(${target} PRIVATE $<TARGET_NAME_IF_EXISTS:etude::own_warnings>)
  set(unit 0)
  set(size 0)
  foreach(source IN LISTS ARGN)
    file(SIZE ${source} bytes)
    math(EXPR size "${size} + ${bytes}")
    if(size GREATER etude_unit_size)
      math(EXPR unit "${unit} + 1")
      set(size ${bytes})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${unit})
  endforeach()
endfunction()

# etude_embed(etude_NAME FOLDER): compiles the .css and .js files of src/FOLDER into the library: file.js becomes the
# std::string_view file_js. The scripts are modules. A page joins them in one script element, where they see each other without
# `import` and `export`.
function(etude_embed target folder)
  file(GLOB files CONFIGURE_DEPENDS ${etude_src}/${folder}/*.css ${etude_src}/${folder}/*.js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(text "#include <string_view>\n\nnamespace etude::inline v0::detail {\n")
  foreach(file IN LISTS files)
    file(READ ${file} content)
    if(file MATCHES "\\.js$")
      string(REGEX REPLACE "\nimport [^;]*;" "" content "\n${content}")
      string(REPLACE "\nexport " "\n" content "${content}")
    endif()
    cmake_path(GET file FILENAME name)
    string(REPLACE "." "_" name ${name})
    string(APPEND text "\nextern const std::string_view ${name};\nconst std::string_view ${name} = R\"etude(${content})etude\";\n")
  endforeach()
  string(APPEND text "\n}  // namespace etude::inline v0::detail\n")
  string(REPLACE "/" "-" name ${folder})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/etude-${name}.cpp)
  set(old "")
  if(EXISTS ${source})
    file(READ ${source} old)
  endif()
  if(NOT old STREQUAL text)
    file(WRITE ${source} "${text}")
  endif()
  target_sources(${target} PRIVATE ${source})
endfunction()

if(NOT TARGET etude::core)
  # Without LibTorch: the callback handler, filters, arguments, JSON, the command line, files.
  etude_sources(etude_files "(base|reflect|io|dispatch)/.*" optimizer_names training_arguments trainer_control)
  etude_add_library(etude_core ${etude_files})
  target_link_libraries(etude_core PUBLIC etude::base)

  # Pages of charts, and the study of trials, which writes such a page.
  etude_sources(etude_files "report/.*")
  etude_add_library(etude_pages ${etude_files})
  etude_embed(etude_pages report/page)
  target_link_libraries(etude_pages PUBLIC etude::core)
  etude_sources(etude_files "study/.*")
  etude_add_library(etude_study ${etude_files})
  etude_embed(etude_study study/page)
  target_link_libraries(etude_study PUBLIC etude::core etude::pages)
  target_compile_definitions(etude_study PUBLIC ETUDE_STUDY)
endif()

if(NOT TARGET torch OR TARGET etude::etude)
  return()
endif()

# Tensors, modules and weight files: enough for a program that runs or trains a module without a trainer.
etude_sources(etude_tensors "data/(batch|division|tensors|tensors_of)" "formats/(file_dtype|mapped_tensor|safetensors|safetensors_header)"
              "libtorch/(autocast|foreach|torch_error)" "model/(equal|forward|model|modules)" "checkpoint/(load_weights|model_files)" base/fmt)
etude_add_library(etude_tensors ${etude_tensors})
target_link_libraries(etude_tensors PUBLIC etude::core torch)
# Compiling LibTorch's templates takes most of a file's time, so this precompiles only the headers that use them; torch.h itself
# would slow down every file.
target_precompile_headers(etude_tensors PRIVATE <torch/types.h> <etude/loop/core.hpp>)

# The sources for training.
set(etude_kernels "optim/(bfloat16|block_quantization|clipping|flat_optimizer|rules/[a-z0-9_]+)")
set(etude_pictures "(formats/png|metrics/sample_file|callbacks/samples_to_folder)")
set(etude_processes "parallel/(distributed_data_parallel|gloo|join_processes|nccl|rendezvous|shared_memory|shared_segment)")
etude_sources(etude_files "(libtorch|data|metrics|precision|checkpoint|loop|callbacks|model|optim|parallel)/.*" any_trainer run trainer trainer_options
              "formats/(csv_text|idx|idx_header|mapped_tensor|npy|npy_header|safetensors|safetensors_header|stored_tensors|token_windows|wav)" "tune/(batch_size_finder|learning_rate_finder|memory_estimate)")
list(FILTER etude_files EXCLUDE REGEX "/(${etude_processes}|${etude_kernels}|${etude_pictures}|model/(exported_[a-z_]+|load_exported)|libtorch/compiled_library|checkpoint/torch_to_safetensors|callbacks/(report|named_callbacks))\\.cpp$")
list(REMOVE_ITEM etude_files ${etude_tensors})
etude_add_library(etude ${etude_files})
target_link_libraries(etude PUBLIC etude::tensors)
target_precompile_headers(etude REUSE_FROM etude_tensors)

# Code that loops over the elements of tensors.
etude_sources(etude_files ${etude_kernels})
etude_add_library(etude_kernels ${etude_files})
target_link_libraries(etude_kernels PRIVATE etude)
# Where a processor can multiply and add in one instruction, compilers use it in some loops but not in others, so an element's result would
# depend on the processor and on its place in the tensor.
target_compile_options(etude_kernels PRIVATE -ffp-contract=off)
# g++ compiles with the optimisation level of the precompiled header, which is -O2 in a Release build.
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_precompile_headers(etude_kernels REUSE_FROM etude_tensors)
endif()
target_link_libraries(etude PRIVATE etude_kernels)

etude_sources(etude_files ${etude_processes})
etude_add_library(etude_parallel ${etude_files})
target_link_libraries(etude_parallel PUBLIC etude::etude PRIVATE etude::gloo)
target_precompile_headers(etude_parallel REUSE_FROM etude_tensors)
target_compile_definitions(etude_parallel PUBLIC ETUDE_PARALLEL)

# PyTorch's files, and models that Python exported, which run without a trainer.
if(TARGET etude::zip)
  etude_sources(etude_files "formats/(pickle|torch_|zip_).*" checkpoint/torch_to_safetensors)
  etude_add_library(etude_torch_file ${etude_files})
  target_link_libraries(etude_torch_file PUBLIC etude::tensors etude::zip)
  target_precompile_headers(etude_torch_file REUSE_FROM etude_tensors)
  target_compile_definitions(etude_torch_file PUBLIC ETUDE_TORCH_FILE)
  etude_sources(etude_files "model/(exported_.*|load_exported)" "formats/(exported_json|pt2_archive)" libtorch/compiled_library)
  etude_add_library(etude_exported ${etude_files})
  target_link_libraries(etude_exported PUBLIC etude::torch_file ${CMAKE_DL_LIBS})
  target_precompile_headers(etude_exported REUSE_FROM etude_tensors)
  target_compile_definitions(etude_exported PUBLIC ETUDE_EXPORTED)
endif()

if(TARGET etude::libcsv)
  etude_sources(etude_files formats/csv)
  etude_add_library(etude_csv ${etude_files})
  target_link_libraries(etude_csv PUBLIC etude::etude etude::libcsv)
  target_precompile_headers(etude_csv REUSE_FROM etude_tensors)
  target_compile_definitions(etude_csv PUBLIC ETUDE_CSV)
endif()

if(TARGET PNG::PNG)
  etude_sources(etude_files ${etude_pictures})
  etude_add_library(etude_png ${etude_files})
  target_link_libraries(etude_png PUBLIC etude::etude PNG::PNG)
  target_precompile_headers(etude_png REUSE_FROM etude_tensors)
  target_compile_definitions(etude_png PUBLIC ETUDE_PICTURES)
endif()

if(TARGET PNG::PNG AND TARGET JPEG::JPEG)
  etude_sources(etude_files "formats/(image|image_folder|decode_png|decode_jpeg)")
  etude_add_library(etude_images ${etude_files})
  target_link_libraries(etude_images PUBLIC etude::tensors PRIVATE PNG::PNG JPEG::JPEG)
  target_precompile_headers(etude_images REUSE_FROM etude_tensors)
  target_compile_definitions(etude_images PUBLIC ETUDE_IMAGES)
endif()

etude_sources(etude_files "tune/(hyperparameter_search|search_.*)")
etude_add_library(etude_search ${etude_files})
target_link_libraries(etude_search PUBLIC etude::etude etude::study)
target_precompile_headers(etude_search REUSE_FROM etude_tensors)
target_compile_definitions(etude_search PUBLIC ETUDE_SEARCH)

etude_sources(etude_files "callbacks/(report|named_callbacks)")
etude_add_library(etude_report ${etude_files})
target_link_libraries(etude_report PUBLIC etude::etude etude::pages)
target_precompile_headers(etude_report REUSE_FROM etude_tensors)
target_compile_definitions(etude_report PUBLIC ETUDE_REPORT)

etude_sources(etude_files "testing/.*")
etude_add_library(etude_testing ${etude_files})
target_link_libraries(etude_testing PUBLIC etude::parallel)
target_precompile_headers(etude_testing REUSE_FROM etude_tensors)

# Precompiles LibTorch and Etude, once for each target that links it (or once for several, with REUSE_FROM).
add_library(etude_pch INTERFACE)
add_library(etude::pch ALIAS etude_pch)
target_link_libraries(etude_pch INTERFACE etude::etude)
target_precompile_headers(etude_pch INTERFACE <torch/torch.h> <etude/etude.hpp>)
