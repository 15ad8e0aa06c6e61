# SPDX-License-Identifier: MIT
# The targets that programs link with, for the installed package and for add_subdirectory.

# hfcomm_add_targets(INCLUDE LIBRARY): adds hfcomm::hfcomm, whose headers are in the folder INCLUDE, and hfcomm::compiled,
# whose compiled part is the target or file LIBRARY, or neither where that is empty. Needs the targets cereal::cereal and
# Threads::Threads.
function(hfcomm_add_targets include library)
  if(NOT TARGET hfcomm::hfcomm)
    add_library(hfcomm::hfcomm INTERFACE IMPORTED GLOBAL)
    target_include_directories(hfcomm::hfcomm INTERFACE "${include}")
    target_compile_features(hfcomm::hfcomm INTERFACE cxx_std_20)
    target_link_libraries(hfcomm::hfcomm INTERFACE cereal::cereal Threads::Threads ${CMAKE_DL_LIBS})
  endif()
  if(library AND NOT TARGET hfcomm::compiled)
    add_library(hfcomm::compiled INTERFACE IMPORTED GLOBAL)
    target_compile_definitions(hfcomm::compiled INTERFACE HFCOMM_COMPILED=1)
    target_link_libraries(hfcomm::compiled INTERFACE "${library}" hfcomm::hfcomm)
  endif()
endfunction()

# hfcomm_add_torch(LIBRARY INCLUDES LINK): adds hfcomm::torch, for <hfcomm/torch.hpp>, whose compiled part is the target or
# file LIBRARY; nothing where that is empty. INCLUDES are the folders of LibTorch's headers, and LINK what links it.
function(hfcomm_add_torch library includes link)
  if(library AND NOT TARGET hfcomm::torch)
    add_library(hfcomm::torch INTERFACE IMPORTED GLOBAL)
    target_include_directories(hfcomm::torch SYSTEM INTERFACE ${includes})
    target_link_libraries(hfcomm::torch INTERFACE "${library}" hfcomm::compiled ${link})
  endif()
endfunction()
